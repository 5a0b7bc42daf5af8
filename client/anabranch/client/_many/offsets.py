"""`SharedOffsets`: the committed offsets of many topics' groups, by few clients of Kafka.

A consumer of Kafka commits for one group, its administrator for any. A late commit has the bounds
of `GroupOffsets`: it does not begin when its consumer's session is nearly over, even after a long
wait for its turn, and is given up as early.

Four calls of librdkafka 2.16 end the process, and so are not made (its issues 3663, 4605):

- A request of the administrator to a group's coordinator, if its own time ends before librdkafka
  finds the coordinator. So such a request has no time of its own. After a long wait we end the
  whole client, with all that it would still have sent. The next request makes another one.
- `list_consumer_group_offsets`, when the group's coordinator has moved or is not ready.
- `describe_cluster`, when Kafka tells of no broker. A single one does so if it was too slow for its
  controller (an assertion in `rd_kafka_admin_response_parse`).
- `list_offsets`, when metadata comes while it looks for a leader that it does not know yet. It
  looks on the caller's thread, and librdkafka's own thread takes away the data of both
  (`rd_kafka_topic_partition_list_query_leaders_async_worker`). Seen with 10,000 topics.

So a consumer that joins no group tells the begin and end of partitions. Another one names the group
of a topic, tells its committed offsets, never joins it, and ends afterwards: some milliseconds of
processor time.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from anabranch.client._consumer.assignment import Partition
from anabranch.client._consumer.group_offsets import (
    Answers,
    Position,
    answers_of,
    committed_in_portions,
    known_of,
    marked,
    patience_s,
    ranges_by,
)
from anabranch.client._kafka_options import ADMIN, CONSUMER, made
from anabranch.wire import clock

_T = TypeVar("_T")

_ASK_S_MAX: Final = 5.0
_COMMITTING_MAX: Final = 32  # under way at once
_CONSUMERS_MAX: Final = 8  # at once, each on a thread; they last for one question
_NEVER_S: Final = 3_600.0  # the most that librdkafka takes


class _Admin:
    """An administrator, and the callers that wait for it. Make and end it on one event loop."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._properties = {**ADMIN, **kafka}
        self._clients: list[AdminClient] = []  # one
        self._making = asyncio.Lock()

    async def made(self) -> None:
        """Makes the client, if it is not there yet. Raises KafkaException."""
        async with self._making:
            if not self._clients and not self.lost.done():
                self._clients.append(await asyncio.to_thread(made, AdminClient, self._properties))

    def commit(self, group: ConsumerGroupTopicPartitions) -> asyncio.Future[Any]:
        """Commits the group's offsets."""
        asked = self._clients[0].alter_consumer_group_offsets([group], request_timeout=_NEVER_S)
        return asyncio.wrap_future(*asked.values())

    async def end(self) -> None:
        """Ends the client and its threads. It sends nothing more, and answers nobody."""
        if not self.lost.done():
            self.lost.set_result(None)
            await asyncio.to_thread(self._clients.clear)


class OffsetsClient:
    """The part that all groups share. Make it and use it on one event loop."""

    def __init__(self) -> None:
        self._kafka: Mapping[str, Any] = {}
        self._admin: _Admin | None = None
        self._asking: Consumer | None = None
        self._making = threading.Lock()
        self._turn = asyncio.Semaphore(_COMMITTING_MAX)
        self._threads = ThreadPoolExecutor(_CONSUMERS_MAX, "anabranch-offsets")

    def of_group(self, kafka: Mapping[str, Any], session_s: float, mark: str) -> SharedOffsets:
        """Returns the offsets of the group in `kafka`.
        The other properties are the same for all topics.
        """
        self._kafka = {name: value for name, value in kafka.items() if name != "group.id"}
        return SharedOffsets(self, kafka, session_s, mark)

    async def commit(
        self, group: ConsumerGroupTopicPartitions, timeout_s: float, is_late: Callable[[], bool]
    ) -> Answers[int]:
        """Commits in its turn, unless it is late by then. Raises KafkaException."""
        async with self._turn:
            if is_late():
                return Answers({}, {})
            admin = self._admin = self._admin or _Admin(self._kafka)
            await admin.made()
            answer = admin.commit(group)
            answer.add_done_callback(_looked_at)  # it may come when nobody waits any more
            await asyncio.wait(
                [answer, admin.lost], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not answer.done():
                if self._admin is admin:
                    self._admin = None
                await admin.end()
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        return answers_of(answer.result().topic_partitions)

    async def ranges(
        self, partitions: list[Partition], kafka: Mapping[str, Any]
    ) -> Answers[tuple[int, int]]:
        """Returns the result of `GroupOffsets.ranges`.
        `kafka` has the properties of any of the groups.
        """
        return await self.call(lambda: ranges_by(self._asker(kafka), partitions, _ASK_S_MAX))

    def _asker(self, kafka: Mapping[str, Any]) -> Consumer:
        with self._making:
            if self._asking is None:
                self._asking = made(Consumer, {**CONSUMER, **kafka})
            return self._asking

    async def call(self, question: Callable[[], _T]) -> _T:
        """Calls the question on a thread, and returns or raises its outcome."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question)

    async def close(self) -> None:
        """Ends its clients and threads."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.end()
        await asyncio.to_thread(self._threads.shutdown)
        asking, self._asking = self._asking, None
        if asking is not None:
            await asyncio.to_thread(asking.close)


def _looked_at(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


class SharedOffsets:
    """The offsets of one group of many, with the interface of `GroupOffsets`."""

    def __init__(
        self,
        client: OffsetsClient,
        kafka: Mapping[str, Any],
        session_s: float,
        mark: str,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._client = client
        self._kafka = kafka
        self._mark = mark
        self._patience_s = 2 * patience_s(session_s)  # with the coordinator and the answer, in all
        self._now = now

    async def committed(self, partitions: Iterable[Partition]) -> Answers[Position]:
        """Returns the group's committed positions, as `GroupOffsets.committed` does."""
        asked = [TopicPartition(*place) for place in partitions]

        def ask() -> list[TopicPartition]:
            client = made(Consumer, {**CONSUMER, **self._kafka})
            try:
                return client.committed(asked, timeout=_ASK_S_MAX)
            finally:
                client.close()

        return known_of(await self._client.call(ask), self._mark)

    async def ranges(self, partitions: Iterable[Partition]) -> Answers[tuple[int, int]]:
        """Returns Kafka's ranges, as `GroupOffsets.ranges` does."""
        asked = list(partitions)
        return await self._client.ranges(asked, self._kafka) if asked else Answers({}, {})

    async def commit(self, positions: Mapping[Partition, Position], until: float) -> Answers[int]:
        """Commits the positions, as `GroupOffsets.commit` does."""
        return await committed_in_portions(positions, functools.partial(self._commit, until))

    async def _commit(self, until: float, positions: Mapping[Partition, Position]) -> Answers[int]:
        group = ConsumerGroupTopicPartitions(
            str(self._kafka["group.id"]), marked(positions, self._mark)
        )
        return await self._client.commit(group, self._patience_s, lambda: self._now() > until)

    def close(self) -> None:
        """Does nothing, because nothing of it is its own."""
