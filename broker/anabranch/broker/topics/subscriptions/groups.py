"""The Kafka groups of subscriptions: the beginning and the end of each.

One record of the log has a subscription with its beginning. So a consumer that is let in begins
there, even if the node that was asked has ended, and nothing is committed in anybody's name. Kafka
has to be told only for a queue's group.

A group is deleted with its subscription. It comes back with the commit of a consumer that has not
heard of that yet, because Kafka makes it anew. So now and then the leader deletes groups that are
left. It knows them by their names, which are the cluster's own: each ends with the offset in the
log that made the subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import msgspec

from anabranch.broker.errors import ConflictError, OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.broker.topics.kafka_threads import told
from anabranch.broker.topics.subscriptions.positions import Part, Positions, starting_at
from anabranch.channel.kafka.offsets import EARLIEST, Place
from anabranch.core.entities.subscription import SegmentPositions, SubscriptionKind
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.names import Namespace, full_name
from anabranch.core.subscriptions.draining import drained_by_positions
from anabranch.core.topics.kafka_names import kafka_topic

_KAFKA_S: Final = 10.0
_SEARCH_S: Final = 30.0
_STARTED_MAX: Final = 10_000
_AT_ONCE: Final = 500  # topics looked at before others have their turn
_DELETED_MAX: Final = 1_000  # in one search
_DIGITS_MAX: Final = 19  # of an offset: a stranger's name may end with any number of them


class StartPositions(msgspec.Struct, frozen=True):
    """Positions in a topic, and its sealed segments that have nothing to read."""

    incarnation: int
    positions: tuple[SegmentPositions, ...] = ()
    drained: tuple[int, ...] = ()

    def fields(self, name: str, topic: ScalableTopic) -> dict[str, Any]:
        """Returns a record's fields for it; a segment that was pruned meanwhile has no part in
        that.

        Raises ConflictError for another topic of that name, and UnavailableError if its Kafka topic
        was given back since they were found.
        """
        if self.incarnation != topic.incarnation:
            raise ConflictError(f"{full_name(name)} was deleted and made again meanwhile")
        found = {*self.drained, *(each.segment_id for each in self.positions)}
        part = topic.adopted
        if part is not None and part.begins_late and part.segment_id not in found:
            raise UnavailableError(f"{full_name(name)} was given back meanwhile; try again")
        there = {part.segment_id for part in (*topic.segments, *topic.children)}
        return {
            "positions": tuple(each for each in self.positions if each.segment_id in there),
            "segment_ids": tuple(each for each in self.drained if each in there),
        }


def begins_elsewhere(topic: ScalableTopic, start: object) -> bool:
    """Tells whether that start is another place than Kafka's earliest message of some segment."""
    return start != EARLIEST or any(part.begins_late for part in topic.segments)


async def start_positions(
    access: TopicAccess,
    positions: Positions,
    name: str,
    timestamp_ms: int,
    kind: SubscriptionKind,
) -> StartPositions:
    """Returns the positions at that time or a later one, at EARLIEST, or at LATEST.

    EARLIEST is the beginning that Kafka has now: messages deleted later were the subscription's to
    read. If Kafka does not tell it, it is offset 0, and a queue's group finds it by itself. Raises
    NotFoundError. For other times it raises KafkaFailedError, or UnavailableError when Kafka does
    not answer in time.
    """
    topic = access.topic(name)
    if kind is SubscriptionKind.QUEUE and not begins_elsewhere(topic, timestamp_ms):
        return StartPositions(topic.incarnation)
    parts = written_parts(access.service.prefix, name, topic)
    if timestamp_ms == EARLIEST:
        found = await positions.first_offsets(place for part in parts for place in part.places())
    else:
        found = await positions.ask(
            lambda keeper, left_s: starting_at(keeper, parts, timestamp_ms, left_s), _KAFKA_S
        )
    return beginning(topic, parts, found)


def written_parts(prefix: str, name: str, topic: ScalableTopic) -> list[Part]:
    """All that producers may have appended to: while parents are sealed, their children too.

    A Kafka topic that is being given back is one part: all have read what it held before.
    """
    children = topic.children if topic.state is TopicState.SEALING else ()
    continued = topic.continued if children else None
    parts = sorted((*topic.segments, *children), key=lambda part: part.segment_id)
    return [
        Part(part, kafka_topic(prefix, name, topic.incarnation, part))
        for part in parts
        if part is not continued
    ]


def beginning(
    topic: ScalableTopic, parts: Sequence[Part], starts: Mapping[Place, int]
) -> StartPositions:
    """Returns the positions; a segment left out is called drained if all above it are read."""
    found = []
    for part in parts:
        offsets = tuple(
            max(starts.get(place, 0), part.segment.first_offset(place[1]))
            for place in part.places()
        )
        if part.segment.end_offsets:  # nothing behind a sealed one's end is a message
            offsets = tuple(map(min, offsets, part.segment.end_offsets))
        found.append(SegmentPositions(part.segment.segment_id, offsets))
    at = {(each.segment_id, bucket): o for each in found for bucket, o in enumerate(each.offsets)}
    return StartPositions(
        topic.incarnation,
        tuple(each for each in found if any(each.offsets)),
        drained_by_positions(topic.layout, frozenset(), at),
    )


class Groups:
    """Kafka's groups as this node makes and deletes them, for use in its event loop."""

    def __init__(self, service: TopicService, positions: Positions) -> None:
        self._service = service
        self._runtime = service.runtime
        self.positions = positions
        self._started: dict[str, None] = {}
        self._log = get_logger(broker=service.runtime.core.me)

    async def start(self, group: str, starts: Mapping[Place, int]) -> None:
        """Lets a group begin at the first message, or at these offsets.

        No consumer may read before it is done: Kafka would let the group begin at its latest. A
        group that has begun stays, so any node can do this again. Raises KafkaFailedError or
        UnavailableError.
        """
        if group in self._started:
            return
        await told(self._service.workers.start_share_group(group))
        if starts:
            await self.positions.ask(
                lambda keeper, left_s: keeper.begin_queue(group, starts, left_s), _KAFKA_S
            )
        if len(self._started) >= _STARTED_MAX:
            del self._started[next(iter(self._started))]
        self._started[group] = None

    def delete(self, group: str) -> None:
        """Deletes the group of a subscription that is gone, if that is possible now."""

        def done(future: Future[list[str]]) -> None:
            failed = future.cancelled() or future.exception() is not None
            left = failed or bool(future.result())
            self._runtime.soon(self._deleted, group, left)

        with suppress(OperationError):
            self._service.workers.delete_group(group).add_done_callback(done)

    def _deleted(self, group: str, left: bool) -> None:
        self._log.info("group.deleted", group=group, left_to_leader=left)

    async def delete_strays(self, positions: Positions) -> None:
        """Deletes groups of subscriptions that the log has no more. For the leader.

        `positions`: asked for them. Raises Kafka's error, or UnavailableError.
        """
        head = f"{self._service.prefix}subscription."
        found = await positions.ask(
            lambda keeper, left_s: keeper.unused_groups(head, left_s), _SEARCH_S
        )
        # A group newer than this node's view may have a subscription.
        known = {number: group for group in found if (number := _number(group)) is not None}
        next_offset = self._runtime.view.next_offset
        left = {number: group for number, group in known.items() if number < next_offset}
        if not left:
            return
        for number in await self._living(left):
            del left[number]
        if left and self._runtime.has_lease and self._runtime.core.is_leader():
            self._log.info("groups.stray", count=len(left))
            for group in list(left.values())[:_DELETED_MAX]:
                self.delete(group)

    async def _living(self, numbers: Iterable[int]) -> set[int]:
        wanted, living = set(numbers), set()
        view = self._runtime.view
        for number, name in enumerate(self._topics()):
            for _, known in view.subscriptions(name):
                if known.group_offset in wanted:
                    living.add(known.group_offset)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return living

    def _topics(self) -> Iterable[str]:
        view = self._runtime.view
        for tenant in list(view.tenants()):
            for namespace in list(view.namespaces(tenant)):
                yield from list(view.topics(Namespace(namespace)))


def _number(group: str) -> int | None:
    """The offset that a group's name ends with.

    >>> _number("anabranch.subscription.public.default.orders.billing.57"), _number("a.b")
    (57, None)
    """
    digits = group.rpartition(".")[2]
    is_offset = digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX
    return int(digits) if is_offset else None
