"""`DataPlane`: reads buckets from Kafka on a thread of its own. Only this thread changes the set of
buckets.

It hands reads to the event loop in batches. If too much waits there, polling stops, and librdkafka,
whose queue is bounded too, stops fetching. Both are bounded by bytes.

Three settings decide the speed. With its default queue librdkafka reads a fifth of what it can.
With the default `fetch.queue.backoff.ms` it rests for a second whenever the queue was full. A fetch
that waits for news at the broker holds up all behind it on the connection: metadata and the first
fetch of a new partition too. So a hand-over costs `fetch.wait.max.ms`, and this is small.
librdkafka asks for the metadata of a new topic only once a second, so `warm` asks before it is
needed.

If Kafka does not have the next message of a bucket, librdkafka returns an error and reads that
bucket no more. The plane then begins again at the first message that is left. For a caller who
keeps his own positions it ends the reading instead, because he would not learn of the gap in
another way.

Not every offset is a message: ends of transactions and messages of aborted ones have offsets too.
librdkafka passes over them, and tells once the offset at which it is at the end of a bucket. The
plane passes that on as `Read.reached`, behind the reads before it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from anabranch.client._aio import call_on
from anabranch.client._consumer.assignment import Fetch, Partition
from anabranch.client._consumer.reads import Read, ReadTrouble, partition_of, size_of
from anabranch.client._kafka_options import CONSUMER, made
from anabranch.client._settings import ReadSettings
from anabranch.wire.logging import get_logger

_logger = get_logger(__name__)

_ASK_S_MAX: Final = 3.0
_CLOSE_S_MAX: Final = 5.0
_IDLE_S: Final = 0.004  # the longest wait of an order for the polling thread
_PARKED_S: Final = 0.1
_LOOK_S: Final = 2.0  # the interval of looking for a topic


class _Warming(msgspec.Struct, frozen=True):
    """An order to the polling thread to get the metadata of these topics."""

    topics: list[str]
    done: asyncio.Future[None]


def _finish(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():  # the caller has stopped waiting
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


class DataPlane:
    """Reads buckets from `start` until `stop`. Make it and use it on one event loop.

    `kafka` has bootstrap servers, security and group. It calls `on_read` on the loop for new reads
    after `take` had found nothing. With `skips_gone` it passes over next messages that Kafka no
    longer has. Else they are a failure. It reads on while fewer than `waiting_max` messages wait.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        settings: ReadSettings,
        on_read: Callable[[], None],
        trouble: ReadTrouble,
        *,
        skips_gone: bool = True,
    ) -> None:
        self._settings = settings
        self.waiting_max: int = settings.buffered_messages_max
        told = {"error_cb": trouble.heard, "enable.partition.eof": True}
        self._properties = {**CONSUMER, **settings.kafka(), **kafka, **told}
        self._clients: list[Consumer] = []  # one, made by the thread
        self._on_read = on_read
        self._skips_gone = skips_gone
        self._loop = asyncio.get_running_loop()
        self._orders: collections.deque[tuple[Fetch, int] | int | _Warming] = collections.deque()
        self._reads: collections.deque[Read] = collections.deque()
        self._buffered = 0
        self._buffered_bytes = 0
        self._lock = threading.Lock()  # for the three above, and for _told
        self._told = False
        self._wake = threading.Event()
        self._stopped = False
        self._over = False  # no order is obeyed any more
        self._trouble = trouble
        # The polling thread's own.
        self._numbers: dict[Partition, int] = {}
        self._places: dict[int, Partition] = {}  # the same the other way round
        self._position: dict[Partition, int] = {}
        self._asked: list[TopicPartition] | None = None  # all that is read, once it is asked for
        self._unlooked: list[Partition] = []  # still to be looked for
        self._turn = 0
        self._missing: dict[str, None] = {}  # the next to be asked for first
        self._look_at = 0.0
        self._warm: set[str] = set()  # changed by the polling thread only
        self._thread = threading.Thread(target=self._poll, name="anabranch-poll", daemon=True)
        self._thread.start()

    # On the event loop.

    def start(self, fetch: Fetch, offset: int) -> None:
        """Starts to read a bucket from an offset on."""
        self._orders.append((fetch, offset))
        self._wake.set()

    def stop(self, number: int) -> None:
        """Stops to read a bucket. Its earlier reads may still be taken."""
        self._orders.append(number)
        self._wake.set()

    def take(self) -> Read | None:
        """Returns the next read.
        None means that there is nothing, and that `on_read` will be called.
        """
        with self._lock:
            if not self._reads:
                self._told = False
                return None
            read = self._reads.popleft()
            full = self._is_full()
            self._buffered -= read.weight
            self._buffered_bytes -= read.size_bytes
        if full:
            self._wake.set()
        return read

    async def warm(self, topics: Iterable[str]) -> None:
        """Has librdkafka ask for the topics' metadata, if it was not asked for them before.

        Raises KafkaException, also for a topic that Kafka does not know (yet), and if the plane is
        closed.
        """
        wanted = [topic for topic in topics if topic not in self._warm]
        if wanted:
            warming = _Warming(wanted, self._loop.create_future())
            self._orders.append(warming)
            self._wake.set()
            if self._over:
                self._refuse_orders()
            await warming.done

    async def close(self) -> None:
        """Ends the thread and the consumer. It drops reads that were not taken."""
        self._stopped = True
        self._wake.set()
        # librdkafka may wait for ever when closed at the moment at which an offset is out of range.
        closing = threading.Thread(target=self._end, name="anabranch-close", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S_MAX)
        if closing.is_alive():
            _logger.warning("consumer.close_hangs")

    # On the thread.

    def _end(self) -> None:
        self._thread.join()
        for client in self._clients:
            client.close()

    @property
    def _consumer(self) -> Consumer:
        return self._clients[0]

    def _poll(self) -> None:
        try:
            while not (self._clients or self._stopped):
                try:
                    self._clients.append(made(Consumer, self._properties))
                except KafkaException as error:
                    self._trouble.note(error.args[0], "to show a token")
                    self._wake.wait(_PARKED_S)
            if self._clients:
                self._poll_until_stopped()
        except Exception as error:  # noqa: BLE001 - told to whoever receives
            self._trouble.fault(error)
        finally:
            self._over = True
            self._refuse_orders()

    def _refuse_orders(self) -> None:
        """Fails the orders that wait, because no thread obeys them any more."""
        over = KafkaException(KafkaError(KafkaError._DESTROY, "reading has ended"))
        with contextlib.suppress(IndexError):  # two threads may empty it at once
            while True:
                order = self._orders.popleft()
                if isinstance(order, _Warming):
                    self._tell(order, over)

    def _poll_until_stopped(self) -> None:
        settings, consumer = self._settings, self._consumer
        while not self._stopped:
            self._obey()
            try:
                if not self._numbers:
                    self._hand_over(consumer.consume(1, 0))  # errors come like messages
                if not self._numbers or self._is_full():
                    self._wake.wait(_PARKED_S)
                    self._wake.clear()
                    continue
                messages = consumer.consume(settings.batch_messages_max, 0)
                if not messages:
                    # A batch is only complete when it is full or its time is over: one does not
                    # wait.
                    messages = consumer.consume(1, _IDLE_S)
                if messages:
                    self._hand_over(messages)
                elif time.monotonic() >= self._look_at:
                    try:
                        self._look_for_missing()
                    finally:
                        self._look_at = time.monotonic() + _LOOK_S
            except KafkaException as error:
                self._trouble.note(error.args[0])
                self._wake.wait(_PARKED_S)

    def _is_full(self) -> bool:
        settings = self._settings
        return self._buffered >= self.waiting_max or self._buffered_bytes >= settings.quarter_bytes

    def _obey(self) -> None:
        numbers: dict[Partition, int] | None = None
        # Together, as each change costs by all that is assigned.
        ended: list[TopicPartition] = []
        begun: dict[Partition, int] = {}
        while self._orders and not self._stopped:
            order = self._orders.popleft()
            if isinstance(order, _Warming):
                self._ask_for(order)
                continue
            if numbers is None:
                numbers = self._numbers = self._new_table()
            if isinstance(order, int):
                partition = self._places.pop(order, None)
                if partition is None or numbers[partition] != order:
                    continue
                del numbers[partition]
                self._missing.pop(partition[0], None)  # it may be gone for good reason
                self._position.pop(partition)
                if begun.pop(partition, None) is None:
                    ended.append(TopicPartition(*partition))
            else:
                fetch, offset = order
                partition = fetch.partition
                numbers[partition] = fetch.number
                self._places[fetch.number] = partition
                self._position[partition] = offset
                begun[partition] = offset
        if numbers is not None:
            if ended:  # first, because it may have begun again
                self._consumer.incremental_unassign(ended)
            if begun:
                places = [TopicPartition(*each, at) for each, at in begun.items()]
                self._consumer.incremental_assign(places)
            self._asked = None

    def _new_table(self) -> dict[Partition, int]:
        """Returns a table for changes from now on.
        Batches that were handed over keep the former one.
        """
        return dict(self._numbers)

    def _ask_for(self, warming: _Warming) -> None:
        # Here and not in the control thread: asked while another thread polls, librdkafka may
        # answer only when that one ends, whatever time-out it was given.
        failure: KafkaException | None = None
        try:
            for topic in warming.topics:
                self._ask_for_topic(topic)
                self._warm.add(topic)
        except KafkaException as error:
            failure = error
        self._tell(warming, failure)

    def _tell(self, warming: _Warming, failure: KafkaException | None) -> None:
        call_on(self._loop, _finish, warming.done, failure)

    def _ask_for_topic(self, topic: str) -> None:
        error = self._consumer.list_topics(topic, timeout=_ASK_S_MAX).topics[topic].error
        if error is not None:
            raise KafkaException(error)

    def _look_for_missing(self) -> None:
        """Tells of topics that are missing, each of which troubles one segment only.

        librdkafka tells nothing of a deleted topic and waits for it. So the plane asks for one
        topic after the other while nothing comes, and in turn for one of those that were missing.
        """
        missing = [next(iter(self._missing))] if self._missing else []
        for topic in dict.fromkeys([*missing, self._next_topic()]):
            try:
                self._ask_for_topic(topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                self._missing.pop(topic, None)  # it is the last one in turn
                self._missing[topic] = None
                self._trouble_of(topic).missed(topic)
            else:
                self._missing.pop(topic, None)
                self._trouble_of(topic).found(topic)

    def _next_topic(self) -> str:
        """Returns the next of the read topics, in turn, without going through all of them."""
        while True:
            if not self._unlooked:
                self._unlooked = list(self._numbers)
            partition = self._unlooked.pop()
            if partition in self._numbers:
                return partition[0]

    def _went_wrong(self, message: Message, error: KafkaError) -> None:
        partition = partition_of(message)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            if partition in self._numbers:
                self._begin_again(partition)
            return
        self._trouble_of(partition[0]).note(error)

    def _trouble_of(self, _kafka_topic: str) -> ReadTrouble:
        """Returns the listener for the trouble of one topic. "" is none."""
        return self._trouble

    def _begin_again(self, partition: Partition) -> None:
        """Goes on behind a gap in Kafka: its retention has removed the next message, or Kafka has
        lost it.
        """
        position = first = self._position[partition]
        if not self._skips_gone:
            self._trouble_of(partition[0]).fail(
                f"Kafka does not have what comes next, offset {position}, in bucket "
                f"{partition[1]} of {partition[0]}: it was removed before it was read"
            )
            return
        # It comes here once more if Kafka does not answer.
        with contextlib.suppress(KafkaException):
            asked = [TopicPartition(*partition, OFFSET_BEGINNING)]
            answer = self._consumer.offsets_for_times(asked, timeout=_ASK_S_MAX)[0]
            if answer.error is None:
                first = answer.offset
        if position != first:  # a subscription's beginning is what was there then
            _logger.warning(
                "consumer.messages_gone",
                kafka_topic=partition[0],
                bucket=partition[1],
                position=position,
                goes_on_at=first,
            )
        self._position[partition] = first
        self._consumer.incremental_unassign([TopicPartition(*partition)])
        self._consumer.incremental_assign([TopicPartition(*partition, first)])

    def _hand_over(self, found: list[Message]) -> None:
        errors = list(map(Message.error, found))
        if not any(errors):  # an error is true, whatever it is
            self._queue_messages(found)
            return
        self._queue_messages(list(itertools.compress(found, map(operator.not_, errors))))
        for message, error in zip(found, errors, strict=True):
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._reached_end(partition_of(message), message.offset() or 0)
                else:
                    self._went_wrong(message, error)

    def _reached_end(self, partition: Partition, offset: int) -> None:
        """Notes the end of a bucket.
        Nearly always there was nothing between the reads and this offset.
        """
        if partition in self._numbers and offset > self._position[partition]:
            self._position[partition] = offset
            self._queue(Read([], {}, self._numbers, 0, {self._numbers[partition]: offset}))

    def _queue_messages(self, messages: list[Message]) -> None:
        ends = self._ends(messages)
        if ends is None:
            messages = [m for m in messages if partition_of(m) in self._numbers]
            ends = {}
            for message in messages:
                partition, end = partition_of(message), (message.offset() or 0) + 1
                ends[self._numbers[partition]] = self._position[partition] = end
        if not messages:
            return
        self._trouble.well()
        self._turn += 1
        self._queue(Read(messages, ends, self._numbers, size_of(messages, self._turn)))

    def _queue(self, read: Read) -> None:
        with self._lock:
            self._reads.append(read)
            self._buffered += read.weight
            self._buffered_bytes += read.size_bytes
            tell, self._told = not self._told, True
        if tell:
            call_on(self._loop, self._on_read)

    def _ends(self, messages: list[Message]) -> dict[int, int] | None:
        """Returns the ends of a large batch by the consumer's positions, which costs nothing per
        message.

        Returns None if the batch is small, or if the positions do not add up to its messages. Then
        offsets are missing in Kafka, or messages of a former assignment are among them.
        """
        if len(messages) < 4 * len(self._numbers):
            return None
        if self._asked is None:
            self._asked = [TopicPartition(*partition) for partition in self._numbers]
        ends: dict[int, int] = {}
        moved: dict[Partition, int] = {}
        count = 0
        for each in self._consumer.position(self._asked):
            partition = each.topic, each.partition
            if each.offset > self._position[partition]:
                count += each.offset - self._position[partition]
                moved[partition] = each.offset
                ends[self._numbers[partition]] = each.offset
        if count != len(messages):
            return None
        self._position.update(moved)
        return ends
