"""The limits of the SDK's figures: the bare confluent-kafka client under the same loads.

It is tuned as the SDK tunes its own, so that a ratio is what the SDK costs and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from anabranch.client import ProducerSettings
from bench.clients.load import (
    BATCH,
    BATCH_MAX,
    KEYS,
    VALUE,
    Pace,
    Waited,
    due_times,
    stamp,
    stamped,
)
from bench.place import Place, in_sync

_DEADLINE_S = 60.0
_TURN = 500  # messages that are read at once to be worked on
_FETCH_BYTES = 16 * 1024 * 1024
_PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": ProducerSettings().linger_ms,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 100_000,
    "socket.nagle.disable": True,
    "log_level": 3,
}
_CONSUMER: dict[str, Any] = {
    "group.id": "bench-no-group",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "socket.nagle.disable": True,
    "log_level": 3,
}
_SHARE: dict[str, Any] = {
    "share.acknowledgement.mode": "explicit",
    "max.poll.records": BATCH_MAX,
    "fetch.wait.max.ms": 10,
}
_DEEP: dict[str, Any] = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.message.max.bytes": _FETCH_BYTES,
    "fetch.max.bytes": 4 * _FETCH_BYTES,
    "fetch.wait.max.ms": 10,
}


class BareKafka:
    """Makes topics; names the clients' Kafka. Used as a context manager, deletes its topics."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.copies = place.copies
        self.connection = place.connection
        self._address: dict[str, Any] = {
            "bootstrap.servers": place.kafka.bootstrap_servers,
            "log_level": 3,
        }
        self.admin = AdminClient(self._address)
        self.asker = self.consumer(**{"isolation.level": "read_uncommitted"})  # reads nothing
        self._made: list[str] = []

    def __enter__(self) -> BareKafka:
        return self

    def __exit__(self, *_: object) -> None:
        if self._made:
            for future in self.admin.delete_topics(self._made).values():
                future.result(_DEADLINE_S)
        self.asker.close()

    def topic(self, partitions: int) -> str:
        """A fresh topic with one message in each partition, so that each is known to be led.

        librdkafka may lose the first messages of a partition that nobody leads yet.
        """
        name = self.new_name()
        new = self.new_topic(name, partitions)
        self.admin.create_topics([new])[name].result(_DEADLINE_S)
        producer = self.producer()
        for number in range(partitions):
            producer.produce(name, VALUE, partition=number)
        producer.flush(_DEADLINE_S)
        return name

    def new_name(self) -> str:
        """For a topic that the caller makes, and that is deleted in the end."""
        self._made.append(f"bench-bare-{self._place.number()}")
        return self._made[-1]

    def new_topic(self, name: str, partitions: int, **settings: str) -> NewTopic:
        """One to be made, with as many copies as nodes give to segments."""
        config = {"min.insync.replicas": str(in_sync(self.copies)), **settings}
        return NewTopic(name, partitions, self.copies, config=config)

    def producer(self, **settings: Any) -> Producer:
        return producer_of(self._place.kafka.bootstrap_servers, **settings)

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer({**_CONSUMER, **self._address, **settings})

    def share_group(self) -> str:
        """A fresh share group that begins at the first message."""
        name = f"bench-share-{self._place.number()}"
        begin = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[begin])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(_DEADLINE_S)
        return name

    def share_consumer(self, group: str) -> ShareConsumer:
        return ShareConsumer({**_SHARE, **self._address, "group.id": group})


def producer_of(bootstrap_servers: str, **settings: Any) -> Producer:
    """The bare producer that the SDK is compared with."""
    return Producer({**_PRODUCER, "bootstrap.servers": bootstrap_servers, **settings})


# --- throughput -----------------------------------------------------------------------------


class Delivered:
    """Counts delivery reports, and remembers a failure."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.count += 1
        if error is not None:
            self.failure = error

    def check(self, count: int) -> None:
        if self.failure is not None or self.count != count:
            raise RuntimeError(f"{self.count} of {count} were delivered: {self.failure}")


def produce_each(kafka: BareKafka, topic: str, count: int) -> float:
    """Messages per second by `produce`, from the first call to the last report."""
    producer, delivered = kafka.producer(), Delivered()
    producer.list_topics(topic, _DEADLINE_S)
    produce, poll = producer.produce, producer.poll
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                produce(topic, VALUE, KEYS[number % len(KEYS)], on_delivery=delivered)
                break
            except BufferError:
                poll(0.01)
        if number % 500 == 0:
            poll(0)
    producer.flush(_DEADLINE_S)
    took = time.perf_counter() - began
    delivered.check(count)
    return count / took


def produce_batches(kafka: BareKafka, topic: str, count: int) -> float:
    """The same by `produce_batch`, a thousand at a time, the lists made beforehand."""
    producer, delivered = kafka.producer(), Delivered()
    producer.list_topics(topic, _DEADLINE_S)
    batches = [
        [{"value": VALUE, "key": key} for key in KEYS[at : at + BATCH]]
        for at in range(0, len(KEYS), BATCH)
    ]
    began = time.perf_counter()
    for number in range(count // BATCH):
        batch = batches[number % len(batches)]
        while len(producer) > _PRODUCER["queue.buffering.max.messages"] - BATCH:
            producer.poll(0.01)
        if producer.produce_batch(topic, batch, on_delivery=delivered) != BATCH:
            raise RuntimeError(f"a batch was not taken whole: {batch}")
        producer.poll(0)
    producer.flush(_DEADLINE_S)
    took = time.perf_counter() - began
    delivered.check(count // BATCH * BATCH)
    return count / took


def consume(kafka: BareKafka, topics: Sequence[str], count: int) -> float:
    """Messages per second by `consume` with a deep queue."""
    pace = Pace(count)
    consumer = _reader(kafka, topics)
    deadline = time.perf_counter() + _DEADLINE_S
    while not pace.is_over:
        messages = consumer.consume(BATCH_MAX, 0.1)
        if messages:
            pace.took([message.value() or b"" for message in messages if message.error() is None])
        elif time.perf_counter() > deadline:
            raise RuntimeError(f"not all of {count} messages came within {_DEADLINE_S:.0f} s")
    consumer.close()
    return pace.rate


def _reader(kafka: BareKafka, topics: Sequence[str]) -> Consumer:
    """Reads all partitions from their first messages on."""
    consumer = kafka.consumer(**_DEEP)
    places = [
        TopicPartition(topic, number, 0)
        for topic in topics
        for number in consumer.list_topics(topic, _DEADLINE_S).topics[topic].partitions
    ]
    consumer.assign(places)
    return consumer


async def work(
    kafka: BareKafka,
    topics: Sequence[str],
    handle: Callable[[Message], Awaitable[None]],
    concurrency: int,
    over: asyncio.Event,
) -> None:
    """What an application writes by hand: a task for each message, under a semaphore.

    It has no order, no position, no attempts. Ends soon after `over` is set.
    """
    slots, tasks = asyncio.Semaphore(concurrency), set[asyncio.Task[None]]()

    async def work_on(message: Message) -> None:
        try:
            await handle(message)
        finally:
            slots.release()

    consumer = _reader(kafka, topics)
    with contextlib.closing(consumer), ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        while not over.is_set():
            for message in await loop.run_in_executor(thread, consumer.consume, _TURN, 0.1):
                await slots.acquire()
                task = loop.create_task(work_on(message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


def consume_shared(kafka: BareKafka, topics: Sequence[str], count: int) -> float:
    """The same by a share group's only member, each message acknowledged: what a queue is made of.

    Its client (librdkafka 2.16) reads nothing ahead while it waits for acknowledgements.
    """
    group = kafka.share_group()
    consumer = kafka.share_consumer(group)
    consumer.subscribe(list(topics))
    pace = Pace(count)
    deadline = time.perf_counter() + _DEADLINE_S
    while not pace.is_over:
        messages = consumer.poll(0.1)
        if messages:
            pace.took([message.value() or b"" for message in messages if message.error() is None])
            for message in messages:
                consumer.acknowledge(message)
        elif time.perf_counter() > deadline:
            raise RuntimeError(f"not all of {count} messages came within {_DEADLINE_S:.0f} s")
    consumer.close()
    return pace.rate


# --- latency --------------------------------------------------------------------------------


def end_to_end(
    kafka: BareKafka, topic: str, rate: int, seconds: float, linger_ms: float
) -> list[float]:
    """Milliseconds from `produce` to what `poll` returns, at a steady rate; a thread each."""
    producer = kafka.producer(**{"linger.ms": linger_ms})
    consumer = kafka.consumer(**{"fetch.wait.max.ms": 100})
    count = int(rate * seconds)
    waited = Waited(count)
    partitions = producer.list_topics(topic, _DEADLINE_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 1) for number in partitions])
    reader = threading.Thread(target=_receive, args=(consumer, waited))
    with _served(producer):
        reader.start()
        for number in due_times(count, rate):
            key = KEYS[number % len(KEYS)]
            producer.produce(topic, stamp(number), key)
            if number == 0:
                waited.first.wait(_DEADLINE_S)
        reader.join(_DEADLINE_S)
        producer.flush(_DEADLINE_S)
    consumer.close()
    return waited.settled()


@contextlib.contextmanager
def _served(producer: Producer) -> Iterator[None]:
    """The producer's reports are taken on a thread of their own."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            producer.poll(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _receive(consumer: Consumer, waited: Waited) -> None:
    deadline = time.perf_counter() + _DEADLINE_S
    while not waited.is_complete and time.perf_counter() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            waited.came(*stamped(message.value() or b""))
