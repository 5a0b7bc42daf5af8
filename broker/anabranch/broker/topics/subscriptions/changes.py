"""`Subscriptions`: they are made, changed, put somewhere else, and deleted.

One record puts a subscription somewhere else, for all its consumers at once: it begins anew, under
the same Kafka group. The commit of a consumer that was there before says so, and is not believed.
So the change waits for no consumer, and none can undo it. Only a queue gets another group, since
Kafka keeps no such word with its positions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    KafkaFailedError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    listed,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions.groups import (
    Groups,
    StartPositions,
    begins_elsewhere,
    start_positions,
    written_parts,
)
from anabranch.broker.topics.subscriptions.positions import Group
from anabranch.broker.topics.subscriptions.takeover import FromGroup, taken_over
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.core import names
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.log.records import SubscriptionChange, TopicCause
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import full_name
from anabranch.core.subscriptions.known_positions import StandingPositions
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.tenants.limits import TenantLimit

Start = int | FromGroup  # a time in milliseconds, EARLIEST, LATEST, or a group of Kafka's

_KAFKA_S: Final = 10.0
_LOG_S: Final = 10.0
_SO_ALREADY: Final = (
    Verdict.CONSUMER_EXISTS,
    Verdict.UNKNOWN_CONSUMER,
    Verdict.UNKNOWN_SUBSCRIPTION,
)
_LIMITED: Final = {
    SubscriptionOp.CREATE: TenantLimit.MAX_SUBSCRIPTIONS_PER_TOPIC,
    SubscriptionOp.JOIN: TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION,
}


class Subscriptions:
    """Those of the topics that this node controls, for use in its event loop."""

    def __init__(self, access: TopicAccess, groups: Groups) -> None:
        self.access = access
        self.groups = groups
        self.standing = StandingPositions(lambda: access.runtime.view)
        self._runtime = access.runtime
        self._service = access.service
        self._proposals = access.proposals
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = get_logger(broker=access.runtime.core.me)

    def known(self, topic: str, subscription: str) -> Subscription:
        """Returns the log's entry. Raises NotFoundError."""
        known = self._runtime.view.subscription(topic, subscription)
        if known is None:
            self.access.topic(topic)
            raise NotFoundError(f"Subscription not found: {subscription} on {full_name(topic)}")
        return known

    async def create(
        self, topic: str, subscription: str, kind: SubscriptionKind, start: Start = EARLIEST
    ) -> None:
        """Creates a subscription, unless it is there.

        It begins at the messages of that time or a later one, at EARLIEST, at LATEST, or where a
        group of Kafka's has come to in an adopted topic (`taken_over`).
        """
        names.subscription(subscription)
        async with self.alone(topic, subscription):
            if self._runtime.view.subscription(topic, subscription) is None:
                await self.make(topic, subscription, kind, start)
            await self.let_begin(topic, subscription)

    async def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Deletes a subscription. Force also deletes one with consumers, and ends their sessions.

        Raises NotFoundError, and ConflictError for a subscription that has, or may have, consumers.
        """
        async with self.alone(topic, subscription):
            before = self.known(topic, subscription)
            if not force:
                remedy = ", or delete it by force"
                self.must_be_unused(topic, subscription, before, remedy)
            await self.change(topic, subscription, SubscriptionOp.DELETE)
            self.dismiss(topic, subscription, "was deleted")
        group = self.access.group_id(topic, subscription, before)
        self._log.info("subscription.deleted", topic=topic, subscription=subscription, group=group)
        self.groups.delete(group)

    async def reset(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Lets a subscription begin at the messages of that time or a later one, at EARLIEST, or at
        LATEST.

        Its consumers are told to subscribe again. No one else changes the subscription until all of
        it is over. Raises NotFoundError, and PreconditionError for a kind whose positions are not
        the controller's.

        Raises ConflictError for a queue that is being consumed, or may be, and for a subscription
        that was deleted meanwhile and made anew. Raises KafkaFailedError or UnavailableError when
        Kafka does not do its part, or not in time.
        """
        what = _what(topic, subscription)
        timeout_s = self.access.settings.now.operation_timeout_s
        async with self.alone(topic, subscription, timeout_s):
            before = self.known(topic, subscription)
            self._must_be_movable(topic, subscription, before)
            begin = await self._beginning(topic, subscription, before.kind, timestamp_ms)
            self.dismiss(topic, subscription, "was put somewhere else")
            op = SubscriptionOp.RESET
            moved = await self.change(topic, subscription, op, begin=begin, of=before)
            # It was deleted meanwhile, with its topic, where it is not known any more.
            self.known(topic, subscription)
            if moved is None:
                raise ConflictError(f"{what} was deleted meanwhile, and made anew: try again")
            try:
                await self.let_begin(topic, subscription)
            except (KafkaFailedError, UnavailableError) as error:
                raise type(error)(
                    f"{what} was put somewhere else, and begins there once Kafka has made its "
                    f"group: {error.reason}"
                ) from None
        self._log.info(
            "subscription.reset", topic=topic, subscription=subscription, to=timestamp_ms
        )
        if before.kind is SubscriptionKind.QUEUE:
            self.groups.delete(self.access.group_id(topic, subscription, before))

    def dismiss(self, topic: str, subscription: str, why: str) -> None:
        """Lets its consumers subscribe again."""
        self._service.dismiss({topic}, f"{_what(topic, subscription)} {why}", subscription)

    # --- possible consumers -------------------------------------------------------------

    def must_be_unused(
        self, topic: str, subscription: str, known: Subscription, remedy: str
    ) -> None:
        """Raises ConflictError if somebody consumes it, or may; it ends with the remedy."""
        what = _what(topic, subscription)
        consumers = self._consumers(topic, subscription, known)
        if consumers:
            raise ConflictError(f"{what} has consumers: close {listed(consumers)} first{remedy}")
        left_s = self._unknown_s(topic, known)
        if left_s > 0:
            raise ConflictError(
                f"{what} may have consumers that do not know this node yet, which controls the "
                f"topic since a short time only: try again in {math.ceil(left_s)} s{remedy}"
            )

    def is_used(self, topic: str, subscription: str, known: Subscription) -> bool:
        """Returns whether a consumer reads it, or may."""
        consumers = self._consumers(topic, subscription, known)
        return bool(consumers) or self._unknown_s(topic, known) > 0

    def _consumers(self, topic: str, subscription: str, known: Subscription) -> list[str]:
        """Names of those that are connected, and of those that may be serving without."""
        coordinator = self._service.coordinator(topic, subscription)
        found = set(coordinator.connected if coordinator else ())
        idle = set(coordinator.idle if coordinator else ())
        registered = zip(known.consumers, known.instances, strict=True)
        return sorted(found.union(name for name, number in registered if number not in idle))

    def _unknown_s(self, topic: str, known: Subscription) -> float:
        """Returns the seconds for which a queue may yet have consumers that no record names."""
        if known.kind is not SubscriptionKind.QUEUE:
            return 0.0
        name, _ = controller_of(self._runtime.view, topic)
        unit = self._runtime.view.unit(name)
        if unit is not None and unit.since_offset <= known.created_offset:
            return 0.0
        opened_at = self._service.open_since.get(name, -math.inf)
        return opened_at + self._service.settings.timing.queue_gone_s - self._runtime.now()

    def _must_be_movable(self, topic: str, subscription: str, known: Subscription) -> None:
        if known.kind is SubscriptionKind.CHECKPOINT:
            raise PreconditionError(
                f"{_what(topic, subscription)} is of type CHECKPOINT: its consumers keep their "
                "positions themselves; give them the ones to begin at"
            )
        if known.kind is SubscriptionKind.QUEUE:
            # A queue's consumers are registered nowhere, and would go on where they are.
            self.must_be_unused(topic, subscription, known, "")

    # --- steps --------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(
        self, topic: str, subscription: str, timeout_s: float | None = None
    ) -> AsyncIterator[None]:
        """One request of a subscription at a time: their proposals would only beat one another.

        Raises DeadlineExceededError when the request takes longer than that, or than a look-up may.
        """
        limit_s = self.access.settings.now.lookup_timeout_s if timeout_s is None else timeout_s
        key = f"{topic}/{subscription}"
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        what = _what(topic, subscription)
        told = f"{what} is being changed by others all the time; try again"
        try:
            async with asyncio.timeout(limit_s), lock:
                told = f"perhaps {what} was changed: look before you try again"
                yield
        except TimeoutError:
            raise DeadlineExceededError(told) from None

    async def make(
        self, topic: str, subscription: str, kind: SubscriptionKind, start: Start
    ) -> None:
        """Creates a subscription that is not there; `let_begin` has to follow."""
        begin = await self._beginning(topic, subscription, kind, start)
        await self.change(topic, subscription, SubscriptionOp.CREATE, kind=kind, begin=begin)

    async def let_begin(self, topic: str, subscription: str) -> None:
        """Lets a queue begin where the log has it. Raises KafkaFailedError or UnavailableError.

        Not only the node that created it does: that may have ended between the two.
        """
        known = self.known(topic, subscription)
        if known.kind is not SubscriptionKind.QUEUE:
            return
        parts = written_parts(self._service.prefix, topic, self.access.topic(topic))
        group = Group(self.access.group_id(topic, subscription, known), parts, known)
        # Kafka's own setting says of all others that they begin at the first message.
        starts = {place: offset for place, offset in group.starts().items() if offset}
        await self.groups.start(group.name, starts)

    async def _beginning(
        self, topic: str, subscription: str, kind: SubscriptionKind, start: Start
    ) -> StartPositions:
        """Does the same as `start_positions`, or as `taken_over`.

        Raises PreconditionError also where Kafka cannot be told where a queue begins.
        """
        positions = self.groups.positions
        if kind is SubscriptionKind.QUEUE and begins_elsewhere(self.access.topic(topic), start):
            can_be_told = await positions.ask(lambda keeper, _: keeper.places_queues(), _KAFKA_S)
            if not can_be_told:
                raise PreconditionError(
                    f"{_what(topic, subscription)} cannot be of type QUEUE and begin elsewhere "
                    "than at Kafka's earliest message: nodes cannot set offsets of a share group "
                    "if SASL guards Kafka by another mechanism than PLAIN, SCRAM or OAUTHBEARER. "
                    "Take another type, or use Kafka's own kafka-share-groups.sh --reset-offsets "
                    "on its group before anybody consumes it"
                )
        if isinstance(start, FromGroup):
            return await taken_over(self.access, positions, topic, start)
        return await start_positions(self.access, positions, topic, start, kind)

    async def change(
        self,
        topic: str,
        subscription: str,
        op: SubscriptionOp,
        *,
        begin: StartPositions | None = None,
        of: Subscription | None = None,
        **fields: Any,
    ) -> SubscriptionChange | None:
        """Returns the record of a change; None if another request was as fast and has made it
        already.

        `begin`: the beginning that was found a moment ago. `of`: returns None, too, if the
        subscription has begun anew since that was read, or is another one.
        """
        what = _LIMITED.get(op)
        room = None if what is None else self.access.room(what, topic, subscription)

        def build() -> SubscriptionChange | None:
            before = self._runtime.view.subscription(topic, subscription)
            if (before is not None) is (op is SubscriptionOp.CREATE):
                return None
            if before and of and before.created_offset != of.created_offset:
                return None
            if begin is not None:
                fields.update(begin.fields(topic, self.access.topic(topic)))
            if room is not None:
                present: Iterable[object] = self._runtime.view.subscriptions(topic)
                if before is not None:
                    present = () if fields["consumer"] in before.consumers else before.consumers
                fields["limit"] = room.taken(present)
            return self._record(topic, subscription, before, op, **fields)

        refusals = {**self.access.refusals(topic), **dict.fromkeys(_SO_ALREADY)}
        if room is not None:
            refusals[Verdict.LIMIT_REACHED] = room.full
        deadline = self._proposals.deadline(self.access.settings.now.lookup_timeout_s)
        return await self._proposals.settle(build, refusals, deadline)

    async def change_as_read(
        self,
        topic: str,
        subscription: str,
        known: Subscription,
        op: SubscriptionOp,
        **fields: Any,
    ) -> SubscriptionChange | None:
        """Changes, as the node's own act, one that is still as it was read; None: it is not."""

        def build() -> SubscriptionChange | None:
            before = self._runtime.view.subscription(topic, subscription)
            if before is None or before.version != known.version:
                return None
            cause = TopicCause.RETENTION
            return self._record(topic, subscription, before, op, cause=cause, **fields)

        # A layout that has changed meanwhile is looked at next time.
        refusals = self.access.refusals(topic) | {Verdict.SEGMENTS_INVALID: None}
        return await self._proposals.settle(build, refusals, self._proposals.deadline(_LOG_S))

    def _record(
        self,
        topic: str,
        subscription: str,
        before: Subscription | None,
        op: SubscriptionOp,
        **fields: Any,
    ) -> SubscriptionChange:
        proposals, now = self._proposals, self.access.topic(topic)
        actor, proposal_id = proposals.actor(), proposals.new_id()
        return subscription_change(
            actor, topic, now, subscription, before, op, proposal_id, **fields
        )


def _what(topic: str, subscription: str) -> str:
    return f"subscription {subscription} of {full_name(topic)}"
