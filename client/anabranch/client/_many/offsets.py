"""`SharedOffsets`: what the groups of many topics have committed, by one client of Kafka.

A consumer of Kafka commits for one group; its administrator commits for any. The bounds on a commit
that comes late are those of `GroupOffsets`: it is not begun when its consumer's session is nearly
over, however long it waited for its turn, and is given up as early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from anabranch.client._consumer.assignment import Partition
from anabranch.client._consumer.group_offsets import patience_s
from anabranch.client._kafka_options import ADMIN, LIBRDKAFKA_LOG
from anabranch.wire import clock

_T = TypeVar("_T")

_ASK_S_MAX: Final = 5.0
_ASKING_MAX: Final = 32  # under way at once


class OffsetsClient:
    """One administrator of Kafka, for all groups; made and used on one event loop."""

    def __init__(self) -> None:
        self._admin: AdminClient | None = None
        self._turn = asyncio.Semaphore(_ASKING_MAX)

    def of_group(self, kafka: Mapping[str, Any], session_s: float) -> SharedOffsets:
        """The offsets of the group in `kafka`, whose other properties all topics have alike."""
        group = str(kafka["group.id"])
        if self._admin is None:
            given = {name: value for name, value in kafka.items() if name != "group.id"}
            self._admin = AdminClient({**ADMIN, **given}, logger=LIBRDKAFKA_LOG)
        return SharedOffsets(self, self._admin, group, session_s)

    async def ask(self, question: Callable[[], Mapping[Any, Future[_T]]]) -> dict[Any, _T]:
        """What Kafka answers to each part of it, once it is its turn. Raises KafkaException."""
        async with self._turn:
            asked = question()
            answers = {part: asyncio.wrap_future(each) for part, each in asked.items()}
            await asyncio.gather(*answers.values(), return_exceptions=True)
        return {part: answer.result() for part, answer in answers.items()}

    def close(self) -> None:
        """Its threads end with it."""
        self._admin = None


class SharedOffsets:
    """As `GroupOffsets`, of one group of many. `session_s`: how long the session lasts."""

    def __init__(
        self,
        client: OffsetsClient,
        admin: AdminClient,
        group_id: str,
        session_s: float,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._client = client
        self._admin = admin
        self._group_id = group_id
        self._patience_s = 2 * patience_s(session_s)  # with the coordinator and the answer, in all
        self._now = now

    async def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """As that of `GroupOffsets`."""
        asked = self._group(TopicPartition(*partition) for partition in partitions)
        found = await self._client.ask(
            lambda: self._admin.list_consumer_group_offsets([asked], request_timeout=_ASK_S_MAX)
        )
        return {p: offset for p, offset in _offsets(found).items() if offset >= 0}

    async def ranges(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """As that of `GroupOffsets`."""
        asked = list(partitions)
        if not asked:
            return {}
        spec: Any = OffsetSpec  # has no types
        first, end = await asyncio.gather(
            self._listed(asked, spec.earliest()), self._listed(asked, spec.latest())
        )
        return {partition: (first[partition], end[partition]) for partition in asked}

    async def commit(self, offsets: Mapping[Partition, int], until: float) -> bool:
        """As that of `GroupOffsets`."""
        group = self._group(TopicPartition(*p, offset) for p, offset in offsets.items())

        def commit() -> Mapping[Any, Future[Any]]:
            if self._now() > until:
                return {}
            return self._admin.alter_consumer_group_offsets(
                [group], request_timeout=self._patience_s
            )

        found = await self._client.ask(commit)
        _offsets(found)
        return bool(found)

    def close(self) -> None:
        """Nothing of it is its own."""

    def _group(self, partitions: Iterable[TopicPartition]) -> ConsumerGroupTopicPartitions:
        return ConsumerGroupTopicPartitions(self._group_id, list(partitions))

    async def _listed(self, partitions: list[Partition], which: OffsetSpec) -> dict[Partition, int]:
        asked = {TopicPartition(*partition): which for partition in partitions}
        found = await self._client.ask(
            lambda: self._admin.list_offsets(asked, request_timeout=_ASK_S_MAX)
        )
        return {(each.topic, each.partition): info.offset for each, info in found.items()}


def _offsets(answers: Mapping[Any, Any]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for group in answers.values():
        for each in group.topic_partitions:
            if each.error is not None:
                raise KafkaException(each.error)
            found[each.topic, each.partition] = each.offset
    return found
