"""`DataPlane`: reads buckets from Kafka, and commits to their group.

Two threads. One polls a librdkafka consumer, and alone changes what is assigned. The other one asks
and commits, which waits for Kafka and must not keep the first; it does so with a client of its own,
because a commit that waits does not end while another thread polls the same client (librdkafka
2.16). What is read is handed to the event loop in batches; when too much of it lies there, polling
stops, and librdkafka, whose queue is bounded too, stops fetching.

Three settings decide how fast it is. With its default queue librdkafka reads a fifth of what it
can; with the default `fetch.queue.backoff.ms` it rests for a second whenever the queue was full.
And a fetch that waits for news at the broker keeps everything behind it on the connection waiting,
the first fetch of a newly assigned partition and metadata included: `fetch.wait.max.ms` is what a
hand-over costs, so it is small. Metadata of a topic that librdkafka has never seen is only asked
for once a second: `warm` asks before it is needed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from anabranch.client.consumer_errors import KafkaReadError
from anabranch.client.holdings import Fetch
from anabranch.client.read_trouble import LIBRDKAFKA_LOG, ReadTrouble
from anabranch.wire.log import get_logger

_T = TypeVar("_T")
_log = get_logger(__name__)

_KAFKA: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 50,
    "socket.nagle.disable": True,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "log_level": 3,  # errors: a lost connection comes back by itself
}
# A commit that finds no coordinator is tried for the session time-out, by default for much longer
# than a consumer's own session lasts, and would then overwrite its successor's.
_KEEPER: Final[Mapping[str, Any]] = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 2_000,
    "socket.timeout.ms": 4_000,
}
_ASK_S_MAX: Final = 3.0
_CLOSE_S_MAX: Final = 5.0
_IDLE_S: Final = 0.004  # how long an order may wait for the polling thread
_PARKED_S: Final = 0.1

Partition = tuple[str, int]


class ReadSettings(msgspec.Struct, frozen=True):
    """How much is read ahead, and how patient a fetch is."""

    batch_messages_max: int = 10_000
    buffered_messages_max: int = 40_000  # read from librdkafka and not taken yet
    queued_messages_min: int = 1_000_000  # librdkafka reads on below this, per partition
    queued_kbytes_max: int = 131_072  # in all
    fetch_wait_ms: int = 10


class Read:
    """Messages in the order in which they were read; of several partitions, mixed.

    `ends`: by fetch number, the exclusive end of what is in here. `fetches`: whose is whose.
    """

    __slots__ = ("ends", "fetches", "messages")

    def __init__(
        self, messages: list[Message], ends: dict[int, int], fetches: Mapping[Partition, int]
    ) -> None:
        self.messages = messages
        self.ends = ends
        self.fetches = fetches


class _Warming(msgspec.Struct, frozen=True):
    """An order to the polling thread: have the metadata of these topics."""

    topics: list[str]
    done: asyncio.Future[None]


def _finish(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():  # nobody waits any more
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


def partition_of(message: Message) -> Partition:
    """The Kafka topic and partition that a message was read from."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition


class DataPlane:
    """Reads what `start` names until `stop`; made and used on one event loop.

    `kafka`: bootstrap servers, security and group. `on_read` is called on the loop when something
    came after `take` had found nothing.
    """

    def __init__(
        self, kafka: Mapping[str, Any], settings: ReadSettings, on_read: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._consumer = Consumer(
            {
                **_KAFKA,
                "queued.min.messages": settings.queued_messages_min,
                "queued.max.messages.kbytes": settings.queued_kbytes_max,
                "fetch.wait.max.ms": settings.fetch_wait_ms,
                **kafka,
            },
            logger=LIBRDKAFKA_LOG,
        )
        # Of the group's offsets; reads nothing.
        self._keeper = Consumer({**_KAFKA, **_KEEPER, **kafka}, logger=LIBRDKAFKA_LOG)
        self._on_read = on_read
        self._loop = asyncio.get_running_loop()
        self._control = ThreadPoolExecutor(1, "anabranch-control")
        self._orders: collections.deque[tuple[Fetch, int] | int | _Warming] = collections.deque()
        self._reads: collections.deque[Read] = collections.deque()
        self._buffered = 0
        self._lock = threading.Lock()  # of the two above, and of _told
        self._told = False
        self._wake = threading.Event()
        self._stopped = False
        self._trouble = ReadTrouble(on_read)
        # The polling thread's own.
        self._numbers: dict[Partition, int] = {}
        self._position: dict[Partition, int] = {}
        self._partitions: list[TopicPartition] = []
        self._warm: set[str] = set()  # changed by the polling thread only
        self._thread = threading.Thread(target=self._poll, name="anabranch-poll", daemon=True)
        self._thread.start()

    # On the event loop.

    @property
    def failure(self) -> KafkaReadError | None:
        """Why nothing can be read any more."""
        return self._trouble.failure

    def start(self, fetch: Fetch, offset: int) -> None:
        """Read a bucket from an offset on."""
        self._orders.append((fetch, offset))
        self._wake.set()

    def stop(self, number: int) -> None:
        """Read it no more; what was read may still be taken."""
        self._orders.append(number)
        self._wake.set()

    def take(self) -> Read | None:
        """The next batch; None if there is none, and then `on_read` will be called."""
        with self._lock:
            if not self._reads:
                self._told = False
                return None
            read = self._reads.popleft()
            full = self._buffered >= self._settings.buffered_messages_max
            self._buffered -= len(read.messages)
        if full:
            self._wake.set()
        return read

    async def committed(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """The group's committed offsets; 0 where there is none. Raises KafkaException."""
        asked = [TopicPartition(topic, partition) for topic, partition in places]
        found = await self._ask(lambda: self._keeper.committed(asked, timeout=_ASK_S_MAX))
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {(each.topic, each.partition): max(0, each.offset) for each in found}

    async def first_offset(self, place: Partition) -> int:
        """The first offset that Kafka still has. Raises KafkaException."""
        asked = TopicPartition(*place)
        low, _ = await self._ask(
            lambda: self._keeper.get_watermark_offsets(asked, timeout=_ASK_S_MAX)
        )
        return int(low)

    async def commit(self, offsets: Mapping[Partition, int]) -> list[Partition]:
        """Commits, and says which of them Kafka took. Raises KafkaException."""
        given = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        done = await self._ask(lambda: self._keeper.commit(offsets=given, asynchronous=False))
        return [(each.topic, each.partition) for each in done or () if each.error is None]

    async def warm(self, topics: Iterable[str]) -> None:
        """Has librdkafka ask for the topics' metadata, if it was not asked for them before.

        Raises KafkaException.
        """
        wanted = [topic for topic in topics if topic not in self._warm]
        if wanted:
            warming = _Warming(wanted, self._loop.create_future())
            self._orders.append(warming)
            self._wake.set()
            await warming.done

    async def close(self) -> None:
        """Ends both threads and the consumer; what was read and not taken is dropped."""
        self._stopped = True
        self._wake.set()
        # librdkafka may wait for ever when closed at the moment at which an offset is out of range.
        closing = threading.Thread(target=self._end, name="anabranch-close", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S_MAX)
        if closing.is_alive():
            _log.warning("consumer.close_hangs")

    async def _ask(self, question: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._control, question)

    # On the threads.

    def _end(self) -> None:
        self._thread.join()
        self._control.shutdown(wait=True)
        self._consumer.close()
        self._keeper.close()

    def _poll(self) -> None:
        try:
            self._poll_until_stopped()
        except Exception as error:  # noqa: BLE001 - told to whoever receives
            self._trouble.fault(error)

    def _poll_until_stopped(self) -> None:
        settings, consumer = self._settings, self._consumer
        while not self._stopped:
            self._obey()
            if not self._partitions or self._buffered >= settings.buffered_messages_max:
                self._wake.wait(_PARKED_S)
                self._wake.clear()
                continue
            try:
                messages = consumer.consume(settings.batch_messages_max, 0)
                if not messages:
                    # A batch is only complete when it is full or its time is over: one does not
                    # wait.
                    messages = consumer.consume(1, _IDLE_S)
                if messages:
                    self._hand_over(messages)
            except KafkaException as error:
                self._trouble.note(error.args[0])
                self._wake.wait(_PARKED_S)

    def _obey(self) -> None:
        while self._orders:
            order = self._orders.popleft()
            if isinstance(order, _Warming):
                self._ask_for(order)
            elif isinstance(order, int):
                place = next((p for p, number in self._numbers.items() if number == order), None)
                if place is None:
                    continue
                self._numbers = {p: n for p, n in self._numbers.items() if p != place}
                self._position.pop(place)
                self._consumer.incremental_unassign([TopicPartition(*place)])
            else:
                fetch, offset = order
                place = (fetch.kafka_topic, fetch.place.bucket)
                # Batches that were handed over keep the table of their time.
                self._numbers = {**self._numbers, place: fetch.number}
                self._position[place] = offset
                self._consumer.incremental_assign([TopicPartition(*place, offset)])
            self._partitions = [TopicPartition(*p) for p in self._numbers]

    def _ask_for(self, warming: _Warming) -> None:
        # Here and not in the control thread: asked while another thread polls, librdkafka may
        # answer only when that one ends, whatever time-out it was given.
        failure: KafkaException | None = None
        try:
            for topic in warming.topics:
                found = self._consumer.list_topics(topic, timeout=_ASK_S_MAX)
                if found.topics[topic].error is None:
                    self._warm.add(topic)
        except KafkaException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(_finish, warming.done, failure)

    def _hand_over(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            for message in messages:
                self._trouble.note(message.error())
            messages = [message for message in messages if message.error() is None]
        ends = self._ends(messages)
        if ends is None:
            messages = [m for m in messages if partition_of(m) in self._numbers]
            ends = {}
            for message in messages:
                place, end = partition_of(message), (message.offset() or 0) + 1
                ends[self._numbers[place]] = self._position[place] = end
        if not messages:
            return
        read = Read(messages, ends, self._numbers)
        with self._lock:
            self._reads.append(read)
            self._buffered += len(messages)
            tell, self._told = not self._told, True
        if tell:
            self._loop.call_soon_threadsafe(self._on_read)

    def _ends(self, messages: list[Message]) -> dict[int, int] | None:
        """The ends of a large batch by the consumer's positions, which costs nothing per message.

        None when the batch is small, or when the positions do not add up to its messages: offsets
        are missing in Kafka, or messages of a former assignment are among them.
        """
        if len(messages) < 4 * len(self._partitions):
            return None
        ends: dict[int, int] = {}
        moved: dict[Partition, int] = {}
        count = 0
        for each in self._consumer.position(self._partitions):
            place = (each.topic, each.partition)
            if each.offset > self._position[place]:
                count += each.offset - self._position[place]
                moved[place] = each.offset
                ends[self._numbers[place]] = each.offset
        if count != len(messages):
            return None
        self._position.update(moved)
        return ends
