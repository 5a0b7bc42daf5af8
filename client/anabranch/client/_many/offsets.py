"""`SharedOffsets`: what the groups of many topics have committed, by few clients of Kafka.

A consumer of Kafka commits for one group; its administrator commits for any. The bounds on a commit
that comes late are those of `GroupOffsets`: it is not begun when its consumer's session is nearly
over, however long it waited for its turn, and is given up as early.

Two calls of librdkafka 2.16 end the process, and so are not made (its issues 3663, 4605):

- A request of the administrator to a group's coordinator whose own time is over before the
  coordinator was found, once it is found. So such a request has no time of its own: when we have
  waited for long enough, the whole client is ended, which takes what it still would have sent with
  it, and the next request makes another one.
- `list_consumer_group_offsets`, when the group's coordinator has moved or is not ready. So offsets
  are asked for by a consumer that names the group, never joins it, and ends afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from anabranch.client._consumer.assignment import Partition
from anabranch.client._consumer.group_offsets import patience_s
from anabranch.client._kafka_options import ADMIN, CONSUMER, LIBRDKAFKA_LOG
from anabranch.wire import clock

_T = TypeVar("_T")

_ASK_S_MAX: Final = 5.0
_ASKING_MAX: Final = 32  # under way at once
_CONSUMERS_MAX: Final = 8  # at once, each on a thread; they last for one question
_NEVER_S: Final = 3_600.0  # the most that librdkafka takes


class _Admin:
    """An administrator, and who waits for it; made and ended on one event loop."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clients = [AdminClient({**ADMIN, **kafka}, logger=LIBRDKAFKA_LOG)]

    @property
    def client(self) -> AdminClient:
        """To be asked, and not to be kept."""
        return self._clients[0]

    async def end(self) -> None:
        """Sends nothing more, and answers nobody; its threads end with it."""
        if not self.lost.done():
            self.lost.set_result(None)
            await asyncio.to_thread(self._clients.clear)


class OffsetsClient:
    """What all groups share; made and used on one event loop."""

    def __init__(self) -> None:
        self._kafka: Mapping[str, Any] = {}
        self._admin: _Admin | None = None
        self._turn = asyncio.Semaphore(_ASKING_MAX)
        self._threads = ThreadPoolExecutor(_CONSUMERS_MAX, "anabranch-offsets")

    def of_group(self, kafka: Mapping[str, Any], session_s: float) -> SharedOffsets:
        """The offsets of the group in `kafka`, whose other properties all topics have alike."""
        self._kafka = {name: value for name, value in kafka.items() if name != "group.id"}
        return SharedOffsets(self, kafka, session_s)

    async def ask(
        self, question: Callable[[AdminClient], Mapping[Any, Future[_T]]], timeout_s: float
    ) -> dict[Any, _T]:
        """What Kafka answers to each part of it, once it is its turn. Raises KafkaException."""
        async with self._turn:
            if self._admin is None:
                self._admin = _Admin(self._kafka)
            admin = self._admin
            asked = question(admin.client)
            answers = {part: asyncio.wrap_future(each) for part, each in asked.items()}
            try:
                async with asyncio.timeout(timeout_s):
                    await _all_or_lost(answers.values(), admin.lost)
            except TimeoutError:
                if self._admin is admin:
                    self._admin = None
                await admin.end()
        left = [each for each in answers.values() if not each.done() or each.exception()]
        if any(not each.done() for each in left):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        return {part: answer.result() for part, answer in answers.items()}

    async def call(self, question: Callable[[], _T]) -> _T:
        """What it returns or raises, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question)

    async def close(self) -> None:
        """Ends its clients and threads."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.end()
        await asyncio.to_thread(self._threads.shutdown)


async def _all_or_lost(answers: Iterable[asyncio.Future[Any]], lost: asyncio.Future[None]) -> None:
    waiting = set(answers)
    while waiting and not lost.done():
        await asyncio.wait({*waiting, lost}, return_when=asyncio.FIRST_COMPLETED)
        waiting = {each for each in waiting if not each.done()}


class SharedOffsets:
    """As `GroupOffsets`, of one group of many. `session_s`: how long the session lasts."""

    def __init__(
        self,
        client: OffsetsClient,
        kafka: Mapping[str, Any],
        session_s: float,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._client = client
        self._kafka = kafka
        self._group_id = str(kafka["group.id"])
        self._patience_s = 2 * patience_s(session_s)  # with the coordinator and the answer, in all
        self._now = now

    async def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """As that of `GroupOffsets`."""
        asked = [TopicPartition(*partition) for partition in partitions]

        def ask() -> list[TopicPartition]:
            client = Consumer({**CONSUMER, **self._kafka}, logger=LIBRDKAFKA_LOG)
            try:
                return client.committed(asked, timeout=_ASK_S_MAX)
            finally:
                client.close()

        found = _offsets(await self._client.call(ask))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

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
        given = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        group = ConsumerGroupTopicPartitions(self._group_id, given)

        def commit(admin: AdminClient) -> Mapping[Any, Future[Any]]:
            if self._now() > until:
                return {}
            return admin.alter_consumer_group_offsets([group], request_timeout=_NEVER_S)

        found = await self._client.ask(commit, self._patience_s)
        for answer in found.values():
            _offsets(answer.topic_partitions)
        return bool(found)

    def close(self) -> None:
        """Nothing of it is its own."""

    async def _listed(self, partitions: list[Partition], which: OffsetSpec) -> dict[Partition, int]:
        asked = {TopicPartition(*partition): which for partition in partitions}
        found = await self._client.ask(
            lambda admin: admin.list_offsets(asked, request_timeout=_NEVER_S), _ASK_S_MAX
        )
        return {(each.topic, each.partition): info.offset for each, info in found.items()}


def _offsets(answers: Iterable[TopicPartition]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for each in answers:
        if each.error is not None:
            raise KafkaException(each.error)
        found[each.topic, each.partition] = each.offset
    return found
