"""`SubscriptionCoordinator`: the consumers of one subscription, and the buckets that each holds
now.

The log says the registered consumers and the drained segments. `target_assignment` says the target,
and `handover` the time at which a bucket may change hands. This module keeps the controller's own
knowledge in memory: connections, the grace of absent consumers, and the buckets that each may still
be serving. The log says that a session has lapsed. So the next controller, which cannot know it
otherwise, waits for no consumer that was dead before.

A consumer is a *name*; a process that serves under it is an *instance*. A new instance of a name
gets the name's share once its predecessor has ended, has left, or has lapsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Self

import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.subscriptions.draining import Bucket, drained_segments
from anabranch.core.subscriptions.handover import BucketsInUse, Granted, Instance
from anabranch.core.subscriptions.target_assignment import TargetAssignment
from anabranch.core.subscriptions.timing import Timing


class ConsumerAssignment(msgspec.Struct, frozen=True):
    """The buckets that a consumer may serve from now on; it must give up everything else.

    `sequence`: ascends with every assignment of one connection. `shares`: segment id and buckets.
    `commits_again`: True if the consumer is to commit all that it holds once more. `fences`: a
    number for each bucket of `shares`, greater than that of every consumer that had it before.
    """

    epoch: int
    sequence: int
    shares: Granted
    commits_again: bool = False
    fences: tuple[tuple[int, ...], ...] = ()


class SubscriptionCoordinator:
    """The consumers of one subscription. Its controller calls it from one task only.

    `before`: the coordinator of the former life, if the subscription begins anew. It knows the
    instances that served nothing, and the replaced ones that may still serve. `next_fence`: gives a
    greater number each time, also than those of former controllers.

    A queue has no shares: Kafka gives its messages to any consumer, and tells which are done. So
    only the connected consumers of a queue are known.
    """

    def __init__(
        self,
        timing: Timing,
        before: Self | None = None,
        next_fence: Callable[[], int] | None = None,
    ) -> None:
        self._next_fence = next_fence or count(1).__next__
        self._idle = frozenset(before.idle if before else ())
        self._timing = timing
        self._layout: SegmentLayout | None = None
        self._subscription: Subscription | None = None
        self._current: dict[str, Instance] = {}  # by consumer name
        self._former: list[Instance] = list(before._former) if before else []  # replaced, may serve
        for each in self._former:
            each.leaving = set(each.holdings or ())  # for the former life
        self.target = TargetAssignment(timing)
        self.moved = self.target.moved
        self._stale = True  # something has happened since the assignments were worked out

    # --- questions ----------------------------------------------------------------------

    def is_of(self, subscription: Subscription) -> bool:
        """Tells whether this coordinator is of this subscription, not of a former one of
        its name.
        """
        before = self._subscription
        return before is None or before.created_offset == subscription.created_offset

    def rival(self, name: str, instance: int) -> int | None:
        """The connection of another instance than this one under the name, if there is one."""
        found = self._current.get(name)
        return None if found is None or found.number == instance else found.connection

    def is_lapsing(self, name: str, instance: int) -> bool:
        """Tells whether another instance than this one, connected or not, may be serving under the
        name.

        Until it has lapsed the name is not registered for this one, because a controller that takes
        over knows the registered instance only.
        """
        found = self._current.get(name)
        if found is None or found.number == instance:
            return False
        return not found.is_over

    @property
    def connected(self) -> list[str]:
        """Names of the consumers that are connected."""
        return [name for name, each in self._current.items() if each.connection is not None]

    @property
    def away(self) -> int:
        """Returns how many registered consumers were here, or elsewhere, and are not any more."""
        everybody = self._current.values()
        gone = [each for each in everybody if each.opened_at is not None or each.number == NOBODY]
        return sum(each.connection is None for each in gone)

    @property
    def idle(self) -> list[int]:
        """Instances that serve nothing."""
        return [each.number for each in self._current.values() if each.is_idle]

    @property
    def _is_queue(self) -> bool:
        return self._subscription is not None and self._subscription.kind is SubscriptionKind.QUEUE

    @property
    def is_idle(self) -> bool:
        """Tells whether the log says everything that is known here."""
        return not self._current and not self._former

    # --- inputs -------------------------------------------------------------------------

    def changed(self, layout: SegmentLayout, subscription: Subscription, now: float) -> None:
        """The layout or the subscription was folded anew.

        Registered names that were not known are those of a former controller: any of them may be
        serving anything until it reports or lapses, and each has a fresh grace.
        """
        first = self._subscription is None
        if layout is self._layout and subscription == self._subscription:
            return
        self._layout, self._subscription = layout, subscription
        self._stale = True
        drained = frozenset(subscription.drained)
        for each in self._current.values():
            each.drained = {b for b in each.drained if b[0] not in drained}
        self.target.changed(layout, subscription)
        if self._is_queue:
            return
        registered = zip(subscription.consumers, subscription.instances, strict=True)
        for name, number in registered:
            known = self._current.get(name)
            if known is not None and number == NOBODY and known.connection is None:
                known.number = NOBODY
            elif known is None or known.number != number:
                self._retire(name)
                idle = not first or number == NOBODY or number in self._idle
                self._current[name] = Instance(number, now, known=idle)
                inherited = first and number != NOBODY
                self.target.absence.registered(name, None if inherited else frozenset(), now)
        for name in [name for name in self._current if name not in subscription.consumers]:
            self._retire(name)
            self.target.absence.ended(name)

    def opened(
        self,
        name: str,
        instance: int,
        connection: int,
        holdings: Iterable[Bucket],
        drained: Iterable[Bucket],
        now: float,
        *,
        anew: bool = False,
    ) -> bool:
        """A consumer has subscribed, for the first time or again, with its remaining holdings.

        `anew`: it holds them for a former life until it reports, because then it has heard of the
        new one. Returns False if the instance is not the registered one, or will not be, because
        the log is to say that it has ended. A queue's consumers are not registered.
        """
        if self._is_queue:
            self._current.setdefault(name, Instance(instance, now, known=True))
        known = self._current.get(name)
        if known is None or known.number != instance or known.is_ending:
            return False
        known.connection, known.opened_at, known.has_hung_up = connection, now, False
        others = [each.holdings for each in self._current.values() if each is not known]
        # It may be working on its holdings of a former life, even on pruned ones.
        held = set(holdings) if anew else self.target.existing(holdings)
        known.holdings = {b for b in held if not any(b in (each or ()) for each in others)}
        known.leaving = set(known.holdings) if anew else set()
        known.fresh, known.drained = set(), self.target.existing(drained)
        known.heard_at, known.sequence, known.sent = now, 0, None
        self.target.absence.ended(name)
        self._stale = True
        return True

    def heard(
        self,
        name: str,
        connection: int,
        released: Iterable[Bucket],
        drained: Collection[Bucket],
        now: float,
    ) -> bool:
        """A consumer has reported; False for one that must subscribe again to be served."""
        known = self._current.get(name)
        if known is None or known.connection != connection or known.holdings is None:
            return False
        if known.heard_at < now - self._timing.lapse_s:
            return False  # others may have been granted what it held: it must subscribe again
        known.heard_at = now
        confirmed = known.confirmed()
        self.target.unserved.served(confirmed)
        self._stale = known.begun() or bool(confirmed) or self._stale
        let_go = known.holdings.intersection(released)
        if let_go:
            known.holdings -= let_go
            self._stale = True
        if drained:
            known.drained |= self.target.existing(drained)
        return True

    def closed(self, name: str, connection: int, now: float, *, hung_up: bool = False) -> None:
        """A consumer's connection has ended; it keeps its share for the grace.

        `hung_up`: the connection ended as the end of a process ends one. Only a successor under the
        same name relies on it.
        """
        known = self._current.get(name)
        if known is None or known.connection != connection:
            return
        self._stale = True
        if self._subscription is None or self._is_queue:
            del self._current[name]
            return
        known.has_hung_up = hung_up
        self._lost(name, known, now)

    def left(self, name: str, *, keeps_share: bool = False) -> None:
        """A consumer has said that it serves nothing any more.

        `keeps_share`: the name will come back, and has its share until its grace is over. Otherwise
        it is given nothing while its registration lasts, because no other would get the buckets in
        time.
        """
        known = self._current.get(name)
        if known is not None and self._is_queue:
            del self._current[name]
        elif known is not None:
            known.holdings = set()
            known.connection = None
            due = self.target.wanted().get(name, {}) if keeps_share else {}
            kept = {(segment_id, b) for segment_id, buckets in due.items() for b in buckets}
            self.target.absence.gone(name, kept, known.heard_at)
            self._stale = True

    def commit_again(self) -> None:
        """Kafka's positions of the group are wrong: every connected consumer commits once more."""
        for each in self._current.values():
            each.commits_again = each.connection is not None
            self._stale = self._stale or each.commits_again

    def silent(self, now: float) -> list[int]:
        """Connections to close: their consumers have not reported for the session time."""
        limit = now - self._timing.session_timeout_s
        return [
            each.connection
            for each in self._current.values()
            if each.connection is not None and each.heard_at < limit
        ]

    def over(self, now: float) -> list[str]:
        """Consumers that have stayed away for longer than their grace, which the log does not say
        yet.

        As those that have lapsed, they are served no more until it does.
        """
        found = self.target.absence.since_before(now - self._timing.grace_s)
        for name in found:
            self._current[name].is_ending = True
        return found

    def lapsed(self, now: float) -> list[tuple[str, int]]:
        """Names and instances that have certainly ended, which the log does not say yet.

        They are served no more until it does: after that they must be registered again.
        """
        if self._is_queue:
            return []
        limit = now - self._timing.lapse_s
        found = [each for each in self._current.items() if each[1].has_ended(limit)]
        for _, each in found:
            each.is_ending = True
        return [(name, each.number) for name, each in found]

    # --- outputs ------------------------------------------------------------------------

    def drained_segments(self) -> tuple[int, ...]:
        """Sealed segments whose every bucket its server reported drained, and that are not logged
        so.
        """
        layout, subscription = self._layout, self._subscription
        done = set[Bucket]().union(*(each.drained for each in self._current.values()))
        if layout is None or subscription is None or self._is_queue or not done:
            return ()
        return drained_segments(layout, frozenset(subscription.drained), done)

    def assignments(self, now: float) -> list[tuple[int, ConsumerAssignment]]:
        """Connections to which another assignment must be sent, each with it."""
        layout, subscription = self._layout, self._subscription
        if layout is None or subscription is None:
            return []
        self._lapse(now)
        if self._stale:
            self.target.backlog.changed(layout, subscription, now)
        self._stale = self.target.look(now) or self._stale
        if not self._stale:
            return []
        self._stale = False
        if self._is_queue:
            drained = frozenset(subscription.drained)
            # A queue has no order to keep: nothing waits for what is above it.
            everything = tuple(
                (part.segment_id, tuple(range(part.buckets)))
                for part in layout.segments.values()
                if part.segment_id not in drained
            )
            return self._send(layout.epoch, dict.fromkeys(self._current, everything))
        held = self._held()
        self.target.hurry({name: self._current[name] for name in self.connected}, held)
        wanted = self.target.wanted()
        self.target.absence.dealt(wanted)
        shares: dict[str, Granted] = {}
        served: set[Bucket] = set()
        for name, known in self._current.items():
            if known.connection is None or known.holdings is None:
                continue
            granted = held.grantable(wanted.get(name, {}), known)
            taken = {(segment_id, b) for segment_id, buckets in granted for b in buckets}
            self.target.granted(name, taken - known.holdings)
            known.fresh |= taken - known.holdings
            known.fences = {
                bucket: known.fences[bucket]
                if bucket in known.fences and bucket in known.holdings
                else self._next_fence()
                for bucket in sorted(taken)
            }
            known.holdings |= taken
            known.leaving -= taken
            held.take(taken)
            served |= taken - known.fresh
            shares[name] = granted
        self.target.served(served, bool(self.connected), now)
        return self._send(layout.epoch, shares)

    def withheld(self) -> Counter[int]:
        """Counts by segment the buckets that one consumer shall have but another may still be
        serving.
        """
        held = self._held()
        return Counter(
            segment_id
            for name, shares in self.target.wanted().items()
            for segment_id, buckets in shares.items()
            for bucket in buckets
            if not held.allows((segment_id, bucket), self._current.get(name))
        )

    # --- inside -------------------------------------------------------------------------

    def _held(self) -> BucketsInUse:
        return BucketsInUse([*self._current.values(), *self._former], self._layout)

    def _lost(self, name: str, known: Instance, now: float) -> None:
        known.connection = None
        self.target.absence.gone(name, frozenset(known.holdings or ()) - known.fresh, now)

    def _retire(self, name: str) -> None:
        """The name belongs to no instance any more; the last one's holdings lapse with time."""
        known = self._current.pop(name, None)
        if known is not None and not known.is_over:
            self._former.append(known)

    def _lapse(self, now: float) -> None:
        limit = now - self._timing.lapse_s
        if self._is_queue:
            known = self._current.items()
            self._current = {name: each for name, each in known if each.heard_at >= limit}
            return
        left = [each for each in self._former if each.heard_at >= limit]
        self._stale = self._stale or len(left) < len(self._former)
        self._former = left
        for name, each in self._current.items():
            if each.heard_at < limit and each.connection is not None:
                self._lost(name, each, now)
            if each.heard_at < limit and not each.is_idle:
                each.holdings = set()
                self._stale = True

    def _send(self, epoch: int, shares: dict[str, Granted]) -> list[tuple[int, ConsumerAssignment]]:
        sent = []
        for name, share in shares.items():
            known = self._current[name]
            again, known.commits_again = known.commits_again, False
            if known.connection is None or (known.sent == (epoch, share) and not again):
                continue
            known.sent = (epoch, share)
            known.sequence += 1
            fences = tuple(
                tuple(known.fences[segment_id, bucket] for bucket in buckets)
                for segment_id, buckets in share
                if not self._is_queue
            )
            assignment = ConsumerAssignment(epoch, known.sequence, share, again, fences)
            sent.append((known.connection, assignment))
        return sent
