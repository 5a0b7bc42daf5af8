"""Releases of Kafka before 4.2: all of Anabranch but queues, and what is said of those."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.client import Client, ClientError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.jars.artifacts import OLD_SETS
from support.probing import probed
from support.topic_cluster import TopicCluster, run_on, topic_cluster

pytestmark = pytest.mark.long

_KEYS = [f"key-{number}".encode() for number in range(20)]


@pytest.fixture(scope="module", params=OLD_SETS)
def old_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedKafka]:
    """A running Kafka of each release."""
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, differences=Differences(jars=request.param)) as running:
        yield running


async def _life(cluster: TopicCluster, client: Client, topic: str) -> None:
    """Splits and merges between messages, and reads each key's in their order."""
    operations = (
        lambda: cluster.split_any(topic),
        lambda: cluster.merge_last(topic),
        lambda: cluster.split_any(topic, 1),
    )
    sent = 0
    async with await client.create_producer(topic) as producer:
        for operation in (*operations, None):
            for key in _KEYS:
                await producer.send(str(sent).encode(), key=key)
            sent += 1
            if operation is not None:
                await operation()
    got: dict[bytes, list[int]] = {key: [] for key in _KEYS}
    async with await client.subscribe(topic, "s") as consumer:
        while sum(map(len, got.values())) < sent * len(_KEYS):
            batch = await consumer.receive_many()
            for message in batch:
                got[message.key or b""].append(int(message.value))
            consumer.acknowledge(batch)
    assert set(map(tuple, got.values())) == {tuple(range(sent))}


def test_a_topic_is_split_merged_and_read_in_order(
    old_kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    with topic_cluster(old_kafka, topic_prefix, tmp_path) as cluster:
        run_on(cluster, _life)
        with pytest.raises(ClientError, match=r"[Qq]ueues need Kafka 4\.2"):
            asyncio.run(_queue(cluster))


def test_the_doctor_finds_all_but_queues_and_leaves_nothing(
    old_kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    found = probed(old_kafka.bootstrap_servers, topic_prefix, tmp_path)
    assert [each for each in found.values() if not each["ok"]] == []
    assert found["kafka's calls"]["found"].startswith("all but: queues need Kafka 4.2")
    assert found["seal"]["found"] == "refuses by max.message.bytes=78"
    assert "share groups" not in found


async def _queue(cluster: TopicCluster) -> None:
    topic = "public/default/jobs"
    await cluster.create(topic)
    async with Client(cluster.url) as client:
        await client.subscribe_queue(topic, "jobs", subscribe_timeout_s=10.0)
