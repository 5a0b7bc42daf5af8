"""Open transactions in a topic's sealed segments, as its controller finds and ends them.

Kafka is asked only on request, and only of segments that some subscription has yet to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from anabranch.broker.errors import NotFoundError, OperationError, PreconditionError, listed
from anabranch.broker.logging import get_logger
from anabranch.broker.requester import principal
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions.open_transactions import HeldBucket
from anabranch.broker.topics.subscriptions.positions import (
    ANSWER_S,
    BUCKETS_MAX,
    Backlog,
    Part,
    PositionKeeper,
    Positions,
)
from anabranch.channel.kafka.offsets import Place
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import full_name
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.wire import clock


class HeldSegments(msgspec.Struct, frozen=True):
    """The transactions in segments, by Kafka topic; `unknown`: the reason if they are not known."""

    by_topic: Mapping[str, list[HeldBucket]]
    unknown: str = ""


class SegmentTransactions:
    """The requests of one node, for use in its event loop."""

    def __init__(self, access: TopicAccess, positions: Positions, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._access = access
        self._positions = positions
        self._log = get_logger(broker=access.runtime.core.me)

    async def of(
        self,
        name: str,
        topic: ScalableTopic,
        backlogs: Iterable[Backlog],
        only: int | None = None,
    ) -> HeldSegments:
        """Those of the sealed segments that some of these backlogs are in, or of that one.

        Never raises for what Kafka does or does not say.
        """
        unread = {
            number for each in backlogs for number, left in each.segments.items() if left != 0
        }
        ends: dict[Place, int] = {}
        for number in sorted(unread if only is None else unread & {only}):
            ends |= self._ends(name, topic, number)
        if len(ends) > BUCKETS_MAX:
            return HeldSegments(
                {}, f"{len(ends)} entry buckets are more than the {BUCKETS_MAX} that are looked up"
            )
        try:
            found = await self._found(ends, ANSWER_S) if ends else []
        except OperationError as error:
            return HeldSegments({}, error.reason)
        by_topic: dict[str, list[HeldBucket]] = {}
        for each in found:
            by_topic.setdefault(each.place[0], []).append(each)
        return HeldSegments(by_topic)

    async def abort(self, name: str, topic: ScalableTopic, number: int, producer_id: int) -> None:
        """Ends the producer's open transaction in a sealed segment.

        Raises NotFoundError, PreconditionError, ConflictError for a transaction that may still
        live, and the errors of Kafka's refusal or silence.
        """
        what = f"segment {number} of {full_name(name)}"
        part = topic.segment(number)
        if part is None:
            raise NotFoundError(f"Segment not found: {number}")
        if part.is_active:
            raise PreconditionError(
                f"{what} is active: only what keeps a sealed one from being read is ended"
            )
        ends, now_ms = self._ends(name, topic, number), round(time.time() * 1000)
        sealed_ms = part.sealed_at_ms

        def end(keeper: PositionKeeper, left_s: float) -> tuple[list[HeldBucket], list[str]]:
            # In one go, because the same transactional id may soon have another transaction.
            deadline = clock.now() + left_s
            mine = _of(producer_id, keeper.open_transactions(ends, left_s), what)
            left_s = max(0.0, deadline - clock.now())
            return mine, keeper.abort_transactions(mine, sealed_ms, now_ms, left_s)

        mine, fenced = await self._positions.ask(end, self.timeout_s)
        self._log.warning(
            "transaction.aborted",
            topic=name,
            segment=number,
            producer_id=producer_id,
            fenced=fenced,
            buckets=[each.place[1] for each in mine],
            principal=principal(),
        )

    async def stop(self) -> None:
        """Ends the thread."""
        await self._positions.stop()

    async def _found(self, ends: Mapping[Place, int], seconds: float) -> list[HeldBucket]:
        return await self._positions.ask(
            lambda keeper, left_s: keeper.open_transactions(ends, left_s), seconds
        )

    def _ends(self, name: str, topic: ScalableTopic, number: int) -> dict[Place, int]:
        """Returns the ends of a segment's buckets; none if it is active or gone."""
        part = topic.segment(number)
        if part is None or part.is_active:
            return {}
        prefix = self._access.service.prefix
        places = Part(part, kafka_topic(prefix, name, topic.incarnation, part)).places()
        return dict(zip(places, part.end_offsets, strict=True))


def _of(producer_id: int, found: list[HeldBucket], what: str) -> list[HeldBucket]:
    """Returns the producer's open transactions.

    Raises PreconditionError if they are not known, and NotFoundError if there are none.
    """
    for each in found:
        if each.producer is None:
            raise PreconditionError(f"{what}: {each.unknown}")
    mine = [each for each in found if each.producer and each.producer.producer_id == producer_id]
    if not mine:
        there = sorted({each.producer.producer_id for each in found if each.producer})
        who = f"producers {listed(there)} have" if there else "nobody has"
        raise NotFoundError(f"producer {producer_id} has nothing open in {what}; {who}")
    return mine
