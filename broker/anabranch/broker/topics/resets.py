"""`Resets`: a subscription is put somewhere else, for all its consumers at once.

One record makes the subscription begin anew under another Kafka group, whose positions are written
before anybody is let in. What a consumer was at in the former group it may go on committing there,
where nobody looks any more: so none has to be waited for, and none can undo the change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from anabranch.broker.errors import (
    ConflictError,
    DeadlineError,
    KafkaFailedError,
    OperationError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.log import get_logger
from anabranch.broker.topics.access import Access
from anabranch.broker.topics.consumers import Consumers
from anabranch.broker.topics.positions import Part, Positions, starting_at
from anabranch.channel.positions import EARLIEST, Place
from anabranch.core.names import full_name
from anabranch.core.segment_topics import kafka_topic
from anabranch.core.subscriptions import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.topic_guards import controller_of
from anabranch.core.topics import ScalableTopic, TopicState
from anabranch.wire import clock

_KAFKA_S: Final = 10.0


class Resets:
    """The requests of one node, as a controller. To be used in its event loop."""

    def __init__(
        self, access: Access, consumers: Consumers, positions: Positions, timeout_s: float
    ) -> None:
        self._access = access
        self._consumers = consumers
        self._positions = positions
        self._timeout_s = timeout_s
        self._opened_at: dict[str, float] = {}  # bundles, by when they changed hands last
        self._log = get_logger(broker=access.runtime.core.me)
        access.service.listeners.append(self._changed)

    async def reset(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Lets it begin at what has that time or a later one, at EARLIEST, or at LATEST.

        Its consumers are told to subscribe again. Raises NotFoundError, PreconditionError for a
        kind whose positions are not the controller's, ConflictError for a queue that is being
        consumed, or may be, and KafkaFailedError or UnavailableError when Kafka does not do its
        part, or not in time. Nobody else changes the subscription until all of it is over.
        """
        is_reset = False
        try:
            async with self._consumers.alone(topic, subscription, self._timeout_s):
                before = self._consumers.known(topic, subscription)
                self._must_be_movable(topic, subscription, before, timestamp_ms)
                starts = await self._starts(topic, timestamp_ms)
                why = f"subscription {subscription} of {full_name(topic)} was put somewhere else"
                self._access.service.dismiss({topic}, why, subscription)
                await self._consumers.change(topic, subscription, SubscriptionOp.RESET)
                is_reset = True
                await self._begin(topic, subscription, starts)
        except (KafkaFailedError, UnavailableError, DeadlineError) as error:
            if is_reset:
                raise _unfinished(error, topic, subscription) from None
            raise
        former = self._consumers.group_id(topic, subscription, before)
        self._log.info(
            "subscription.reset", topic=topic, subscription=subscription, to=timestamp_ms
        )
        self._access.service.delete_group(former)

    async def _starts(self, topic: str, timestamp_ms: int) -> dict[Place, int]:
        if timestamp_ms == EARLIEST:
            return {}  # where a group begins that has committed nothing
        parts = self._parts(topic, self._access.topic(topic))
        return await self._positions.ask(
            lambda keeper, left_s: starting_at(keeper, parts, timestamp_ms, left_s), _KAFKA_S
        )

    async def _begin(self, topic: str, subscription: str, starts: Mapping[Place, int]) -> None:
        """Puts the new group where it is to begin; until then nobody is let in here."""
        known = self._consumers.known(topic, subscription)
        group = self._consumers.group_id(topic, subscription, known)
        if known.kind is SubscriptionKind.QUEUE:
            await self._consumers.start_share_group(group)
        if starts:
            await self._positions.ask(
                lambda keeper, left_s: keeper.commit(group, starts, left_s), _KAFKA_S
            )
        self._access.must_control(topic)  # else another may have let consumers in meanwhile
        skipped = self._skipped(topic, starts)
        if skipped:
            await self._consumers.change(
                topic, subscription, SubscriptionOp.DRAINED, segment_ids=skipped
            )

    def _skipped(self, topic: str, starts: Mapping[Place, int]) -> tuple[int, ...]:
        """Sealed segments of which nothing is left to read, nor of what is above them."""
        found = self._access.topic(topic)
        layout = found.layout
        done: set[int] = set()
        for part in self._parts(topic, found):
            segment = part.segment
            ends = zip(part.places(), segment.end_offsets, strict=not segment.is_active)
            if (
                not segment.is_active
                and layout.ancestors(segment.segment_id) <= done
                and all(starts.get(place, 0) >= end for place, end in ends)
            ):
                done.add(segment.segment_id)
        return tuple(sorted(done))

    def _parts(self, name: str, topic: ScalableTopic) -> list[Part]:
        """All that producers may have appended to: while parents are sealed, their children too."""
        prefix = self._access.service.prefix
        children = topic.children if topic.state is TopicState.SEALING else ()
        return [
            Part(part, kafka_topic(prefix, name, topic.incarnation, part))
            for part in sorted((*topic.segments, *children), key=lambda part: part.segment_id)
        ]

    def _must_be_movable(
        self, topic: str, subscription: str, known: Subscription, timestamp_ms: int
    ) -> None:
        what = f"subscription {subscription} of {full_name(topic)}"
        if known.kind is SubscriptionKind.CHECKPOINT:
            raise PreconditionError(
                f"{what} is of type CHECKPOINT: its consumers keep their positions themselves; "
                "give them the ones to begin at"
            )
        if known.kind is SubscriptionKind.QUEUE and timestamp_ms != EARLIEST:
            group = self._consumers.group_id(topic, subscription, known)
            raise PreconditionError(
                f"{what} is of type QUEUE, whose positions Kafka keeps: it can only be put at the "
                "earliest message; for anything else close its consumers and use Kafka's own "
                f"kafka-share-groups.sh --reset-offsets on group {group}"
            )
        if known.kind is SubscriptionKind.QUEUE:
            self._must_be_unused(topic, subscription, known, what)

    def _must_be_unused(
        self, topic: str, subscription: str, known: Subscription, what: str
    ) -> None:
        """A queue's consumers are registered nowhere: who may be there takes no part in a reset."""
        service = self._access.service
        controller = service.known_controller(topic)
        coordinator = controller.coordinators.get(subscription) if controller else None
        if coordinator and coordinator.connected:
            raise ConflictError(
                f"{what} has consumers, which would go on where they are: close "
                f"{', '.join(sorted(coordinator.connected)[:8])} first"
            )
        view = self._access.runtime.view
        name, _ = controller_of(view, topic)
        unit = view.unit(name)
        opened_at = self._opened_at.get(name, -math.inf)
        left_s = opened_at + service.settings.timing.queue_gone_s - clock.now()
        if left_s > 0 and (unit is None or unit.since_offset > known.created_offset):
            raise ConflictError(
                f"{what} may have consumers that do not know this node yet, which controls the "
                f"topic since a short time only: try again in {math.ceil(left_s)} s"
            )

    def _changed(self, topics: set[str], units: list[str]) -> None:
        view, me = self._access.runtime.view, self._access.runtime.core.me
        for name in units:
            unit = view.unit(name)
            if unit is not None and unit.holder == me:
                self._opened_at[name] = clock.now()
            else:
                self._opened_at.pop(name, None)


def _unfinished(error: OperationError, topic: str, subscription: str) -> OperationError:
    what = f"subscription {subscription} of {full_name(topic)} now begins at the earliest message"
    if isinstance(error, KafkaFailedError):
        why = "because it could not be put where it was to be"
        return KafkaFailedError(f"{what}, {why}; try again ({error.reason})")
    why = "unless Kafka has put it where it was to be after all"
    return UnavailableError(f"{what}, {why}; try again ({error.reason})")
