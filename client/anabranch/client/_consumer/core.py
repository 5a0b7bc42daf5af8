"""A consumer's decisions about its buckets and its reports: no I/O, no clock.

A shell drives `ConsumerCore`: the session with the controller and the data plane that reads Kafka,
or a simulation. Inputs are calls that tell an event, with its time if that matters. Times are
seconds of one clock that never goes back. Outputs are state to reconcile with, never events:
`fetches` are the buckets to read now, `commits()` the offsets to commit. `report_due()` and
`needs_subscribe` ask to talk to the controller. `wake_at()` is the next change by time alone.

These rules keep two consumers from ever serving one bucket:

* A consumer serves a bucket from the assignment that grants it until a later one does not, or until
  the session lapses. It delivers nothing of the bucket from that moment on.
* A bucket that is taken away is *settling*: the application may still acknowledge its messages,
  until all are acknowledged or `settle_s` is over (infinite: no end). Once all acknowledgements are
  committed, it is *released*. Only then may the controller grant it to another consumer.
* The application hears of a release or loss in the step that makes it (`Holding.listeners`,
  `is_held`). So it hears of a release before the controller can.
* A release is final. An assignment that lists a released bucket before the release was answered may
  be older or younger than the release. The consumer does not believe it and subscribes again, since
  nobody would release that grant if a later assignment has taken the bucket away.
* A Subscribe names all that is held. The controller may grant anew everything else that it counted
  on.
* The session lapses at the time-out of the assignment, counted from the *send* time of the last
  answered subscribe or report. Then the consumer serves, commits and reports nothing until a new
  subscribe, which holds nothing, is answered. The controller waits longer than that before it gives
  the buckets of a silent consumer away.
* A bucket of a sealed segment is *drained* once all up to its sealed end is committed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anabranch.client._consumer.assignment import (
    Assignment,
    AssignmentReport,
    Fetch,
    SegmentBucket,
    SubscribeOrder,
)
from anabranch.client._consumer.holding import Holding, Loss, Phase, committed_of

KEEP_ALIVES: Final = 6  # reports in the time of a session, so that several may get lost
# No commit begins near the end of a session: the rest of it, and the time until the controller
# gives the bucket to another (`LAPSE_MARGIN`), is for the commit itself and for clocks that differ.
COMMIT_MARGIN: Final = 0.2  # a part of the session, and
COMMIT_ROUNDING_S: Final = 1.0  # librdkafka looks only so often whether its patience is over
TRANSACTION_S: Final = 5.0  # most transactions are over sooner, and nobody need hear of them


class ConsumerCore:
    """The decisions of one consumer of one subscription. The module has the rules.

    `numbers` are for fetches, and consumers that share a data plane share them. `keep_alives` is
    the number of reports in the time of a session.
    """

    def __init__(
        self,
        settle_s: float,
        numbers: Iterator[int] | None = None,
        keep_alives: float = KEEP_ALIVES,
    ) -> None:
        self.settle_s = settle_s
        self.assignment: Assignment | None = None
        self.needs_subscribe = True
        self.subscribed = False
        self.dead_letters_waiting = 0  # that could not be put aside
        self.lapses = 0  # sessions that ended because no controller answered
        self.lost = False  # something acknowledged was not committed before one of these
        self._holdings: dict[SegmentBucket, Holding] = {}
        self._fetches: dict[int, Holding] = {}
        # Taken away before all that was delivered was acknowledged, and nobody was told.
        self._losses: dict[SegmentBucket, Holding] = {}
        self._lapsed: set[SegmentBucket] = set()  # lost so, and not had again
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._keep_alives = keep_alives
        self._attempt: tuple[int, float] | None = None  # number and time of the subscribe under way
        self._attempt_released: tuple[Holding, ...] = ()
        self._early: list[Assignment] = []  # seen before the answer, which had come before them
        self._report: tuple[AssignmentReport, float] | None = None
        self._granted: set[SegmentBucket] = set()  # the grants of all assignments since that report
        self._answered_at = -math.inf  # send time of the last that was answered
        self._sent_at = -math.inf
        self._told_waiting = 0  # the last reported number of dead letters
        self._closing = False

    # The session.

    def begin_subscribe(self, now: float) -> SubscribeOrder:
        """Notes that a Subscribe is being sent, and returns it. Earlier questions are void."""
        self._lapse_if_due(now)
        held = tuple(h for h in self._holdings.values() if h.is_held)
        for holding in held:
            holding.drain_told = holding.drained  # this order tells it
        self._attempt_released = tuple(h for h in self._holdings.values() if not h.is_held)
        self._attempt = (next(self._numbers), now)
        self._report, self._early = None, []
        self.subscribed = False
        self._sent_at = now
        return SubscribeOrder(
            number=self._attempt[0],
            holdings=tuple(h.place for h in held),
            drained=tuple(h.place for h in held if h.drained),
            begun_at=0 if self.assignment is None else self.assignment.begun_at,
            committed=committed_of(held),
        )

    def on_subscribed(self, number: int, assignment: Assignment, now: float) -> bool:
        """Takes the answer to that Subscribe. Returns False if the consumer must try again."""
        self._lapse_if_due(now)
        if self._attempt is None or self._attempt[0] != number:
            return False
        sent_at, self._attempt = self._attempt[1], None
        if now - sent_at > assignment.session_timeout_s:
            return False
        for holding in self._attempt_released:
            self._forget(holding)  # the Subscribe did not list it, which says that it is released
        self._attempt_released = ()
        self._answered_at = max(self._answered_at, sent_at)
        self.subscribed, self.needs_subscribe = True, False
        self._told_waiting = 0
        self._apply(assignment, now)
        early, self._early = self._early, []
        for each in early:
            self.on_assignment(each, now)
        return True

    def on_assignment(self, assignment: Assignment, now: float) -> None:
        """Takes an assignment that the controller pushed over the connection of the last Subscribe.

        Assignments before the answer to that Subscribe count as soon as the answer does. All of
        them may come in one piece, and nobody repeats them. Each counts: a bucket that one grants
        and the next takes away goes back to the controller only by a release.
        """
        self._lapse_if_due(now)
        if self.subscribed:
            if self.assignment is None or assignment.sequence > self.assignment.sequence:
                self._apply(assignment, now)
        elif self._attempt is not None:
            self._early.append(assignment)

    def on_disconnected(self) -> None:
        """Notes that the connection is gone or not trusted. The consumer goes on serving."""
        self._attempt = self._report = None
        self._early = []
        self.subscribed = False
        self.needs_subscribe = True

    def begin_report(self, now: float) -> AssignmentReport | None:
        """Notes that a report is being sent, and returns it. Returns None if none may be."""
        self._lapse_if_due(now)
        if not self.subscribed or self._report is not None:
            return None
        released = [h for h in self._holdings.values() if h.phase is Phase.RELEASED]
        report = AssignmentReport(
            number=next(self._numbers),
            released=tuple(each.place for each in released),
            drained=tuple(p for p, h in self._holdings.items() if h.drain_untold),
            dead_letters_waiting=self.dead_letters_waiting,
            committed=committed_of(released),
        )
        self._report, self._granted = (report, now), set()
        self._sent_at = now
        return report

    def on_reported(self, number: int, now: float) -> None:
        """Notes that the report of that number succeeded."""
        self._lapse_if_due(now)
        if self._report is None or self._report[0].number != number:
            return
        (report, sent_at), self._report = self._report, None
        self._answered_at = max(self._answered_at, sent_at)
        self._told_waiting = report.dead_letters_waiting
        for place in report.released:
            self._forget(self._holdings[place])
            if place in self._granted and not self._closing:
                self.needs_subscribe = True  # that grant may be older or younger than the release
        for place in self._holdings.keys() & report.drained:
            self._holdings[place].drain_told = True

    # The data.

    def serve(self, holding: Holding, start: int | None, otherwise: int = 0) -> int:
        """Has a bucket read by another fetch than before, and returns its number."""
        self._unfetch(holding)
        number = next(self._numbers)
        holding.serve(Fetch(number, holding.place, holding.kafka_topic, start, otherwise))
        self._fetches[number] = holding
        return number

    def on_position(self, fetch: int, offset: int) -> None:
        """Notes that the fetch starts at that offset. Everything below it is committed."""
        holding = self._fetches.get(fetch)
        if holding is not None:
            holding.begin(offset)

    def may_deliver(self, fetch: int, now: float) -> Holding | None:
        """Returns the holding for which messages of a fetch may be delivered now, None for none."""
        self._lapse_if_due(now)
        holding = self._fetches.get(fetch)
        return None if holding is None or holding.delivered is None else holding

    def on_reached(self, fetch: int, offset: int) -> None:
        """Notes that Kafka has no undelivered message below `offset`.

        Removed messages and the ends of transactions cannot be acknowledged. They count as
        acknowledged once nothing is in flight, so that they keep no bucket from being drained.
        """
        holding = self._fetches.get(fetch)
        if holding is not None:
            holding.reach(offset)

    def waits_for_transaction(self, fetch: int, stable_end: int, now: float) -> float | None:
        """Returns the seconds for which the fetch has waited for a transaction, None if that is not
        worth telling.

        Kafka returns only what is below `stable_end`. An open transaction begins there if the
        sealed end of the bucket lies beyond.
        """
        holding = self._fetches.get(fetch)
        waited_s = 0.0 if holding is None else holding.held_back_s(stable_end, now)
        return waited_s if waited_s >= TRANSACTION_S else None

    def acknowledge(self, holding: Holding, end: int, now: float) -> bool:
        """Notes that the application has done with everything below `end`.

        Returns False if the bucket was lost before. Its messages are delivered again.
        """
        self._lapse_if_due(now)
        if not holding.acknowledge(end):
            if self._losses.get(holding.place) is holding:
                del self._losses[holding.place]
            return False
        self._release_if_settled(holding, now)
        return True

    def finish(self, holding: Holding, start: int, offset: int, now: float) -> None:
        """Notes that a message is done, of a bucket whose messages are done in any order."""
        self._lapse_if_due(now)
        holding.finish(start, offset)
        self._release_if_settled(holding, now)

    def give_up_work(self, holding: Holding, offset: int, now: float) -> None:
        """Notes that a message is worked on no more, and is not done."""
        self._lapse_if_due(now)
        holding.give_up(offset)
        self._release_if_settled(holding, now)

    def take_losses(self) -> list[Holding]:
        """Returns the buckets that were taken away with unacknowledged messages, each once."""
        found, self._losses = self._losses, {}
        return list(found.values())

    def is_held(self, holding: Holding, now: float) -> bool:
        """Returns True if no other consumer may have the bucket now. Any thread may ask."""
        return holding.is_held and self.is_alive(now)

    def commit_again(self) -> None:
        """Has all acknowledged offsets committed once more. No bucket is released before that."""
        for holding in self._all():
            if holding.is_held and holding.acknowledged is not None:
                holding.commits_again = True

    def commits(self, now: float) -> list[tuple[Holding, int]]:
        """Returns the offsets to commit now."""
        self._lapse_if_due(now)
        return [
            (h, h.acknowledged)
            for h in self._all()
            if h.is_held and h.acknowledged is not None and h.to_commit
        ]

    def commits_until(self) -> float:
        """Returns the last time to begin a commit that ends before the bucket can move."""
        session_s = 0.0 if self.assignment is None else self.assignment.session_timeout_s
        return self._lapses_at() - COMMIT_MARGIN * session_s - COMMIT_ROUNDING_S

    def commit_urgent(self, now: float, holdings: Iterable[Holding] | None = None) -> bool:
        """Returns True if somebody waits for a commit: for a settled bucket, or one at its end."""
        return any(h.commit_urgent(now) for h in (self._all() if holdings is None else holdings))

    def on_committed(self, holding: Holding, end: int, now: float) -> None:
        """Notes that everything below `end` is committed."""
        self._lapse_if_due(now)
        if holding.commit(end):
            self._release_if_settled(holding, now)

    # The outputs.

    @property
    def fetches(self) -> Mapping[int, Holding]:
        """The holdings to read now, by number of the fetch (`holding.fetch`)."""
        return self._fetches

    @property
    def holdings(self) -> Mapping[SegmentBucket, Holding]:
        """The held buckets, and the released ones until the controller has confirmed that."""
        return self._holdings

    def report_due(self, now: float) -> bool:
        """Returns True if there are news to report, or if it is time to keep the session."""
        if not self.subscribed or self._report is not None:
            return False
        return now >= self._keep_alive_at() or self.has_news

    @property
    def has_news(self) -> bool:
        """True if a report would contain more than that the consumer is there."""
        if self.dead_letters_waiting != self._told_waiting:
            return True
        return any(h.phase is Phase.RELEASED or h.drain_untold for h in self._all())

    def wake_at(self) -> float:
        """Returns the next time at which `tick` or `report_due` may have something new."""
        times = [h.settle_by for h in self._all() if h.phase is Phase.SETTLING]
        times.append(self._lapses_at())
        if self.subscribed and self._report is None:
            times.append(self._keep_alive_at())
        return min(times)

    def tick(self, now: float) -> bool:
        """Notes that time has passed. Returns True if the session lapsed just now."""
        if self._lapse_if_due(now):
            return True
        for holding in list(self._all()):
            self._release_if_settled(holding, now)
        return False

    def is_alive(self, now: float) -> bool:
        """Returns True while the session lasts: the controller answered recently enough."""
        return now <= self._lapses_at() and self.assignment is not None

    def close(self, now: float, loss: Loss = Loss.CLOSED) -> None:
        """Stops serving for good. It releases each bucket once its commits are done."""
        self._closing = True
        for holding in list(self._all()):
            if holding.is_held:
                self._stop(holding, now, loss)
        self.tick(now)

    def give_up(self, loss: Loss) -> None:
        """Stops serving for good, and does nothing more for held buckets."""
        self._closing = True
        self._lose_all(loss)

    @property
    def holds_nothing(self) -> bool:
        """True once nothing is held any more."""
        return not any(h.is_held for h in self._all())

    # The rules.

    def _all(self) -> Iterable[Holding]:
        return self._holdings.values()

    def _apply(self, assignment: Assignment, now: float) -> None:
        before, self.assignment = self.assignment, assignment
        if before is not None and _origin(before) != _origin(assignment):
            for holding in list(self._all()):  # they are of a former topic or subscription
                self._lose(holding, Loss.ANEW)
            self._report = None  # its answer speaks of the former one's buckets
        granted = {} if self._closing else assignment.places()
        self._granted.update(granted)
        for place, holding in list(self._holdings.items()):
            if place not in granted and holding.phase is Phase.SERVING:
                self._stop(holding, now + self.settle_s, Loss.SETTLE_TIMEOUT)
                self._release_if_settled(holding, now)
        in_report = () if self._report is None else self._report[0].released
        for place, segment in granted.items():
            end = segment.end_offsets[place.bucket] if segment.end_offsets else None
            known = self._holdings.get(place)
            if known is not None and known.phase is Phase.RELEASED:
                if place in in_report:
                    continue
                self._forget(known)  # the controller has not been told
                known = None
            if known is None:
                known = self._holdings[place] = Holding(place, segment.kafka_topic, end)
                known.is_after_lapse = place in self._lapsed
                self._lapsed.discard(place)
            known.end_offset = end
            known.fence = max(known.fence, segment.fence_of(place.bucket))
            if end == 0:  # Kafka may have its topic or not
                self._unfetch(known)
                known.end_where_it_began()
            elif known.fetch is None:
                start = known.delivered if known.gaps is None else known.gaps.rewind()
                self.serve(known, start, segment.start_of(place.bucket))
        if assignment.commits_again:
            self.commit_again()

    def _stop(self, holding: Holding, settle_by: float, loss: Loss) -> None:
        self._unfetch(holding)
        holding.settle(settle_by, loss)

    def _release_if_settled(self, holding: Holding, now: float) -> None:
        was_held = holding.is_held
        holding.release_if_settled(now)
        if was_held and not holding.is_held and holding.in_flight:
            self._losses[holding.place] = holding

    def _unfetch(self, holding: Holding) -> None:
        if holding.fetch is not None:
            del self._fetches[holding.fetch.number]
            holding.fetch = None

    def _keep_alive_at(self) -> float:
        timeout = math.inf if self.assignment is None else self.assignment.session_timeout_s
        return self._sent_at + timeout / self._keep_alives

    def _lapses_at(self) -> float:
        if self.assignment is None or not self._holdings:
            return math.inf
        return self._answered_at + self.assignment.session_timeout_s

    def _lapse_if_due(self, now: float) -> bool:
        if now <= self._lapses_at():
            return False
        self._lose_all(Loss.LAPSED)
        self.lapses += 1
        self.on_disconnected()
        return True

    def _lose_all(self, loss: Loss) -> None:
        for holding in list(self._all()):
            self.lost |= holding.uncommitted
            self._lose(holding, loss)
            if loss is Loss.LAPSED:
                self._lapsed.add(holding.place)

    def _lose(self, holding: Holding, loss: Loss) -> None:
        self._unfetch(holding)
        if holding.is_held and holding.in_flight:
            self._losses[holding.place] = holding
        holding.lose(loss)
        self._holdings.pop(holding.place, None)

    def _forget(self, holding: Holding) -> None:
        if self._holdings.get(holding.place) is holding:
            del self._holdings[holding.place]


def _origin(assignment: Assignment) -> tuple[int, int]:
    """Returns a value that differs once the topic or subscription is new, or has moved."""
    return assignment.incarnation, assignment.begun_at
