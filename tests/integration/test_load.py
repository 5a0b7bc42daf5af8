"""The load of segments: measured by their topic's controller, also of Kafka's own clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, eventually

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
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("load")
    with topic_cluster(kafka, f"{folder.name}.", folder, *QUICK) as running:
        yield running


async def of_segment(cluster: TopicCluster, topic: str) -> dict[str, Any]:
    """What its controller tells of the topic's only segment."""
    found: dict[str, Any] = (await cluster.call("GET", f"{topic}/stats"))["segments"]["0"]
    return found


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


@pytest.mark.long
async def test_plain_kafka_producers_are_seen(cluster: TopicCluster, topic: str) -> None:
    plain = Plain(cluster.kafka, (await of_segment(cluster, topic))["kafkaTopic"])

    async def comes_to(rate_in: float) -> dict[str, Any]:
        """The load, once it is about that."""
        found: dict[str, Any] = {}

        async def is_about() -> bool:
            found.update((await of_segment(cluster, topic))["load"] or {"msgRateIn": -1.0})
            return bool(found["msgRateIn"] == pytest.approx(rate_in, rel=0.3))

        await eventually(is_about, WAIT_S)
        return found

    async with plain.writing(200):
        load = await comes_to(200.0)
        assert load["bytesRateIn"] == pytest.approx(load["msgRateIn"] * _SIZE, rel=0.25)
    await comes_to(0.0)
