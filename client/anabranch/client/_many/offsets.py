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

So a consumer that joins no group tells the begin and end of partitions. A connection of our own
asks for the committed offsets of hundreds of groups together. The bootstrap servers tell whom to
ask. This does not work behind SASL by Kerberos, or for a group that Kafka does not tell of in this
way. There a consumer that names the group asks, never joins it, and ends afterwards: some
milliseconds of processor time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
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
    answers_of,
    committed_apart,
    known_of,
    marked,
    patience_s,
    ranges_by,
)
from anabranch.client._kafka_options import ADMIN, CONSUMER, LIBRDKAFKA_LOG
from anabranch.wire import clock
from anabranch.wire.kafka.committed import Committed, CommittedReader
from anabranch.wire.kafka.protocol import KafkaProtocolError, bootstrap_addresses, can_ask
from anabranch.wire.supervised import supervised

_T = TypeVar("_T")

_ASK_S_MAX: Final = 5.0
_ASKING_MAX: Final = 32  # under way at once
_CONSUMERS_MAX: Final = 8  # at once, each on a thread; they last for one question
_TOGETHER_MAX: Final = 500  # groups of one request
_TOGETHER_S_MAX: Final = 3.0
_PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_NOT_ANSWERED: Final = Committed({}, KafkaError.COORDINATOR_NOT_AVAILABLE)
_NEVER_S: Final = 3_600.0  # the most that librdkafka takes


class _Admin:
    """An administrator, and the callers that wait for it. Make and end it on one event loop."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clients = [AdminClient({**ADMIN, **kafka}, logger=LIBRDKAFKA_LOG)]

    @property
    def client(self) -> AdminClient:
        """The client, to be asked but not to be kept."""
        return self._clients[0]

    async def end(self) -> None:
        """Ends the client and its threads. It sends nothing more, and answers nobody."""
        if not self.lost.done():
            self.lost.set_result(None)
            await asyncio.to_thread(self._clients.clear)


class _Question(msgspec.Struct, eq=False):
    """A question for the committed offsets of one group.
    The answer None means that Kafka does not tell them so.
    """

    group: str
    partitions: list[Partition]
    answer: asyncio.Future[Committed | None]


class CommittedTogether:
    """Asks for the committed offsets of many groups in one request. Questions during a request wait
    for the next one.

    Make it and use it on one event loop.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        security = {name: value for name, value in kafka.items() if name != "bootstrap.servers"}
        self._can_ask = can_ask(security)
        self._reader = CommittedReader(security, _TOGETHER_S_MAX)
        self._brokers = bootstrap_addresses(str(kafka.get("bootstrap.servers", "")))
        self._waiting: list[_Question] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "anabranch-committed")

    async def committed(
        self, group: str, partitions: list[Partition], mark: str
    ) -> dict[Partition, int] | None:
        """Returns the group's committed offsets of that mark, None if the group must be asked for
        by itself.

        Raises KafkaException for an error that passes.
        """
        if not self._can_ask:
            return None
        question = _Question(group, partitions, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        if self._task is None:
            self._task = supervised(self._ask_all(), "committed offsets")
        told = await question.answer
        if told is not None and told.error in _PASSING:
            raise KafkaException(KafkaError(told.error))
        if told is None or told.error:
            return None  # librdkafka has a better text for a refusal
        believed = told.marked(mark)
        return {place: believed[place] for place in partitions if place in believed}

    async def close(self) -> None:
        """Asks nothing more. Waiting callers get None."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._tell_all(())  # it may not even have begun
        await asyncio.to_thread(self._thread.shutdown)
        self._reader.close()

    async def _ask_all(self) -> None:
        asked: list[_Question] = []
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:_TOGETHER_MAX], self._waiting[_TOGETHER_MAX:]
                told = await self._told(asked)
                for each in asked:
                    _tell(each, told.get(each.group))
        finally:
            self._task = None
            self._tell_all(asked)  # none is left, except after a fault or a cancellation

    def _tell_all(self, asked: Iterable[_Question]) -> None:
        """Answers these questions, and those that wait, with None."""
        left, self._waiting = [*asked, *self._waiting], []
        for each in left:
            _tell(each, None)

    async def _told(self, asked: list[_Question]) -> dict[str, Committed]:
        groups: dict[str, list[Partition]] = {}
        for each in asked:
            groups.setdefault(each.group, []).extend(each.partitions)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._reader.committed, self._brokers, groups
            )
        except TimeoutError:  # so many clients more would only make Kafka slower
            return {each.group: _NOT_ANSWERED for each in asked}
        except (OSError, KafkaProtocolError):
            return {}  # a question for one group gets the error


def _tell(question: _Question, told: Committed | None) -> None:
    if not question.answer.done():
        question.answer.set_result(told)


class OffsetsClient:
    """The part that all groups share. Make it and use it on one event loop."""

    def __init__(self) -> None:
        self._kafka: Mapping[str, Any] = {}
        self._admin: _Admin | None = None
        self._together: CommittedTogether | None = None
        self._asking: Consumer | None = None
        self._turn = asyncio.Semaphore(_ASKING_MAX)
        self._threads = ThreadPoolExecutor(_CONSUMERS_MAX, "anabranch-offsets")

    def of_group(self, kafka: Mapping[str, Any], session_s: float, mark: str) -> SharedOffsets:
        """Returns the offsets of the group in `kafka`.
        The other properties are the same for all topics.
        """
        self._kafka = {name: value for name, value in kafka.items() if name != "group.id"}
        if self._together is None:
            self._together = CommittedTogether(self._kafka)
        return SharedOffsets(self, kafka, session_s, mark)

    async def ask(
        self, question: Callable[[AdminClient], Mapping[Any, Future[_T]]], timeout_s: float
    ) -> dict[Any, _T]:
        """Asks in its turn, and returns Kafka's answer to each part. Raises KafkaException."""
        async with self._turn:
            if self._admin is None:
                self._admin = _Admin(self._kafka)
            admin = self._admin
            asked = question(admin.client)
            answers = {part: asyncio.wrap_future(each) for part, each in asked.items()}
            for answer in answers.values():
                answer.add_done_callback(_looked_at)  # it may come when nobody waits any more
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

    async def committed(
        self, group: str, partitions: list[Partition], mark: str
    ) -> dict[Partition, int] | None:
        """Returns the group's committed offsets, asked for with those of others, None if that
        cannot be.
        """
        if self._together is None:
            return None
        return await self._together.committed(group, partitions, mark)

    async def ranges(
        self, partitions: list[Partition], kafka: Mapping[str, Any]
    ) -> Answers[tuple[int, int]]:
        """Returns the result of `GroupOffsets.ranges`.
        `kafka` has the properties of any of the groups.
        """
        if self._asking is None:
            self._asking = Consumer({**CONSUMER, **kafka}, logger=LIBRDKAFKA_LOG)
        client = self._asking
        return await self.call(lambda: ranges_by(client, partitions, _ASK_S_MAX))

    async def call(self, question: Callable[[], _T]) -> _T:
        """Calls the question on a thread, and returns or raises its outcome."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question)

    async def close(self) -> None:
        """Ends its clients and threads."""
        if self._together is not None:
            await self._together.close()
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


async def _all_or_lost(answers: Iterable[asyncio.Future[Any]], lost: asyncio.Future[None]) -> None:
    waiting = set(answers)
    while waiting and not lost.done():
        await asyncio.wait({*waiting, lost}, return_when=asyncio.FIRST_COMPLETED)
        waiting = {each for each in waiting if not each.done()}


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
        self._group_id = str(kafka["group.id"])
        self._mark = mark
        self._patience_s = 2 * patience_s(session_s)  # with the coordinator and the answer, in all
        self._now = now

    async def committed(self, partitions: Iterable[Partition]) -> Answers[int]:
        """Returns the group's committed offsets, as `GroupOffsets.committed` does."""
        places = list(partitions)
        told = await self._client.committed(self._group_id, places, self._mark)
        if told is not None:
            return Answers(told, {})
        asked = [TopicPartition(*place) for place in places]

        def ask() -> list[TopicPartition]:
            client = Consumer({**CONSUMER, **self._kafka}, logger=LIBRDKAFKA_LOG)
            try:
                return client.committed(asked, timeout=_ASK_S_MAX)
            finally:
                client.close()

        return known_of(await self._client.call(ask), self._mark)

    async def ranges(self, partitions: Iterable[Partition]) -> Answers[tuple[int, int]]:
        """Returns Kafka's ranges, as `GroupOffsets.ranges` does."""
        asked = list(partitions)
        return await self._client.ranges(asked, self._kafka) if asked else Answers({}, {})

    async def commit(self, offsets: Mapping[Partition, int], until: float) -> Answers[int]:
        """Commits the offsets, as `GroupOffsets.commit` does."""
        return await committed_apart(offsets, functools.partial(self._commit, until))

    async def _commit(self, until: float, offsets: Mapping[Partition, int]) -> Answers[int]:
        group = ConsumerGroupTopicPartitions(self._group_id, marked(offsets, self._mark))

        def commit(admin: AdminClient) -> Mapping[Any, Future[Any]]:
            if self._now() > until:
                return {}
            return admin.alter_consumer_group_offsets([group], request_timeout=_NEVER_S)

        found = await self._client.ask(commit, self._patience_s)
        return answers_of(each for answer in found.values() for each in answer.topic_partitions)

    def close(self) -> None:
        """Does nothing, because nothing of it is its own."""
