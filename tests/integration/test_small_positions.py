"""A Kafka whose operator lets positions have little metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.client import Client, DeadlineError, Message, Work
from anabranch.client._consumer.gaps import BYTES_MAX
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support.topic_cluster import TopicCluster, run_on, topic_cluster
from support.waiting import WAIT_S, until

pytestmark = pytest.mark.long

_MESSAGES = 9_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    differences = Differences(server={"offset.metadata.max.bytes": "256"})
    with EmbeddedKafka(tmp_path / "small", differences=differences) as running:
        yield running


def test_maps_become_as_small_as_kafka_takes_them(
    small: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    """Every third message does not end at first, so that a map of all has 400 characters."""

    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        may_end = asyncio.Event()
        done: list[str] = []

        async def handle(message: Message, work: Work) -> None:
            if int(message.value) % 3 == 0:
                await may_end.wait()
            done.append(work.id)

        async with await client.create_producer(topic) as producer:
            await producer.send_many((b"%d" % n, b"%d" % n) for n in range(_MESSAGES))
            await producer.flush()
        consumer = await client.subscribe(topic, "billing")
        run = asyncio.create_task(consumer.run(handle, concurrency=_MESSAGES))
        await until(lambda: consumer._map_bytes_max < BYTES_MAX or run.done(), WAIT_S)
        may_end.set()
        await until(lambda: len(done) == _MESSAGES or run.done(), WAIT_S)
        await consumer.stop()
        await run
        assert len(set(done)) == len(done) == _MESSAGES
        async with await client.subscribe(topic, "billing") as late:
            with pytest.raises(DeadlineError):
                await late.receive(1.0)

    with topic_cluster(small, topic_prefix, tmp_path) as cluster:
        run_on(cluster, body)
