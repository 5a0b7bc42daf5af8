"""The load of segments: measured by their topic's controller, whoever writes and reads them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from anabranch.client import Client, DeadlineError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.load_watch import LoadWatch, load_watch
from support.quiet import QUIET
from support.there import there
from support.topic_cluster import TopicCluster, topic_cluster

_SIZE = 400
QUICK = (
    "scalableTopicLoadReportIntervalSeconds=0.25",
    # What comes late because the machine stood still is a small part of such a window.
    "scalableTopicLoadWindowSeconds=10",
    "scalableTopicAutoScaleEnabled=false",
    # Then no rate is negligible.
    "scalableTopicMergeMsgRateInThreshold=0",
    "scalableTopicMergeBytesRateInThreshold=0",
    "scalableTopicMergeMsgRateOutThreshold=0",
    "scalableTopicMergeBytesRateOutThreshold=0",
)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"{tmp_path_factory.mktemp('load').name}."


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    with topic_cluster(kafka, prefix, tmp_path_factory.mktemp("nodes"), *QUICK) as running:
        yield running


@pytest.fixture
def watch(kafka: EmbeddedKafka, prefix: str) -> Iterator[LoadWatch]:
    with load_watch(kafka.bootstrap_servers, prefix) as watching:
        yield watching


async def kafka_topic(cluster: TopicCluster, topic: str) -> str:
    stats = await cluster.call("GET", f"{topic}/stats")
    return str(stats["segments"]["0"]["kafkaTopic"])


class Plain:
    """Kafka's own clients on one segment, which know nothing of Anabranch."""

    def __init__(self, servers: str, kafka_topic: str) -> None:
        self.servers = servers
        self.topic = kafka_topic
        self._producer = Producer({**QUIET, "bootstrap.servers": servers})
        self.messages = 0

    @asynccontextmanager
    async def writing(self, a_second: int) -> AsyncIterator[None]:
        """So many messages a second, evenly, until the end of the block."""

        async def write() -> None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            sent = 0
            while True:
                due = int((loop.time() - began) * a_second)
                for _ in range(due - sent):
                    self._producer.produce(self.topic, b"x" * _SIZE)
                sent = due
                self._producer.poll(0)
                await asyncio.sleep(0.01)

        task = asyncio.create_task(write())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await asyncio.to_thread(self._producer.flush, 60.0) == 0

    @asynccontextmanager
    async def reading(self, group: str) -> AsyncIterator[None]:
        """Reads with a group, and commits, until the end of the block."""
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
            }
        )
        consumer.subscribe([self.topic])
        over = asyncio.Event()

        def read() -> None:
            while not over.is_set():
                consumer.consume(1_000, 0.05)
            consumer.close()

        reader = asyncio.create_task(asyncio.to_thread(read))
        try:
            yield
        finally:
            over.set()
            await reader


@pytest.mark.long
async def test_plain_kafka_clients_are_seen_and_a_steady_load_is_written_once(
    cluster: TopicCluster, watch: LoadWatch, client: Client, topic: str
) -> None:
    plain = Plain(cluster.kafka, await kafka_topic(cluster, topic))

    def about(rate: float) -> bool:
        load = watch.of(topic)
        return load is not None and abs(load.msg_rate_in - rate) < 0.3 * rate

    def is_read() -> bool:
        load = watch.of(topic)
        return (
            load is not None and abs(load.msg_rate_out - 200) < 60 and load.bytes_rate_out_estimated
        )

    async with plain.writing(200):
        await watch.until(lambda: about(200.0), "the rate is written")
        await watch.until_quiet(topic, 4.0)
        load = there(watch.of(topic))
        assert load.bytes_rate_in == pytest.approx(load.msg_rate_in * _SIZE, rel=0.25)
        assert load.bytes_rate_in_estimated
        assert load.msg_rate_out == 0.0
        async with plain.reading("stranger"):
            await watch.until(is_read, "what is read is written")
    await watch.until(lambda: watch.of(topic).msg_rate_in == 0.0, "it came to rest")  # type: ignore[union-attr]


async def steady(producer: Any, a_second: int, until: asyncio.Event) -> None:
    """So many messages a second."""
    loop = asyncio.get_running_loop()
    began, sent = loop.time(), 0
    while not until.is_set():
        due = int((loop.time() - began) * a_second)
        for number in range(sent, due):
            await producer.post(b"x" * _SIZE, f"key-{number % 50}")
        sent = due
        await asyncio.sleep(0.01)


async def test_what_the_sdk_writes_and_reads_is_known_exactly_and_survives_a_move_of_the_controller(
    cluster: TopicCluster, watch: LoadWatch, client: Client, topic: str
) -> None:
    over = asyncio.Event()
    producer = await client.create_producer(topic)
    stream = await client.subscribe(topic, "billing")
    queue = await client.subscribe_queue(topic, "jobs")

    async def read_stream() -> None:
        while not over.is_set():
            with contextlib.suppress(DeadlineError):
                stream.acknowledge(await stream.receive_many(timeout_s=0.2))

    async def read_queue() -> None:
        while not over.is_set():
            with contextlib.suppress(DeadlineError):
                await queue.receive_many(timeout_s=0.2)
                queue.acknowledge_all()

    def exact() -> bool:
        load = watch.of(topic)
        return (
            load is not None
            and load.estimated == (False, False)
            and abs(load.msg_rate_in - 200) < 70
            and abs(load.msg_rate_out - 400) < 140
        )

    running = [
        asyncio.create_task(each)
        for each in (steady(producer, 200, over), read_stream(), read_queue())
    ]
    try:
        await watch.until(exact, "all that is written and read is known")
        load = there(watch.of(topic))
        assert load.bytes_rate_in == pytest.approx(load.msg_rate_in * _SIZE, rel=0.05)
        assert load.bytes_rate_out == pytest.approx(load.msg_rate_out * _SIZE, rel=0.05)
        await cluster.unload()
        count = len(watch.written(topic))
        await watch.for_s(6.0)
        after = watch.written(topic)[count:]
        assert all(each is not None and each.msg_rate_in > 100 for each in after)
        await watch.until(exact, "it is known exactly again")
    finally:
        over.set()
        await asyncio.gather(*running)
