"""Topics that change their segments by themselves, on a real Kafka with real clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.client import Client, ClosedError, StreamConsumer
from anabranch.core.hashing import hash32
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import TopicCluster, topic_cluster
from support.traffic import Traffic, stored, wrong
from support.waiting import WAIT_S, eventually, until

_KEYS = [b"key-%d" % number for number in range(200)]
# A minute of the defaults is a second here.
_PACE = (
    "scalableTopicLoadReportIntervalSeconds=0.2",
    "scalableTopicLoadWindowSeconds=1",
    "scalableTopicAutoScaleIntervalSeconds=0.2",
    "scalableTopicSealedSegmentDrainDelaySeconds=0.3",
)
_POLICY = {
    "maxSegments": 4,
    "splitCooldownSeconds": 0.5,
    "rebucketCooldownSeconds": 0.5,
    "mergeCooldownSeconds": 0.5,
    "mergeWindowSeconds": 1,
    "splitMsgRateInThreshold": 60,
    "mergeMsgRateInThreshold": 25,
    "splitVsRebucketMinMsgRateInThreshold": 40,
}


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("paced")
    with topic_cluster(kafka, f"{folder.name}.", folder, *_PACE) as running:
        yield running


async def set_policy(cluster: TopicCluster, topic: str, **fields: Any) -> None:
    await cluster.call("POST", f"{topic}/autoScalePolicy", json={**_POLICY, **fields})


async def grown(cluster: TopicCluster, topic: str, count: int) -> None:
    """Waits until there are so many active segments, or more: who looks late sees more."""

    async def enough() -> bool:
        return len(await cluster.active(topic)) >= count

    await eventually(enough, WAIT_S)


async def scaled(cluster: TopicCluster, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.call("GET", f"{topic}/stats"))["autoScale"]
    return found


async def test_a_topic_follows_its_load_out_and_in_and_keeps_every_message_in_order(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    # A slow machine sends less, which is to divide it all the same.
    await set_policy(cluster, topic, splitMsgRateInThreshold=20, mergeMsgRateInThreshold=8)
    traffic = Traffic(await client.create_producer(topic), _KEYS, pause_s=0.005)
    await grown(cluster, topic, 4)
    sent = await traffic.stop()
    splits = [each["action"].split()[0] for each in (await scaled(cluster, topic))["decisions"]]
    assert set(splits) >= {"split"}
    watch = await client.watch(topic)
    await until(lambda: len(watch.layout.active) == 1, WAIT_S)
    assert wrong(stored(cluster.kafka, watch.layout), sent) == []


# --- consumers and entry buckets -----------------------------------------------------------------


async def consuming(
    consumer: StreamConsumer,
    name: str,
    seen: list[tuple[str, int, int, bytes, int]],
    pause_s: float,
) -> None:
    """Receives one by one, with some work for each, until the consumer is closed."""
    with contextlib.suppress(ClosedError):
        while True:
            message = await consumer.receive()
            await asyncio.sleep(pause_s)
            seen.append(
                (name, message.segment_id, message.bucket, message.key or b"", int(message.value))
            )
            consumer.acknowledge(message)


@pytest.mark.parametrize("segments", [8])
async def test_eight_consumers_drain_a_sealed_backlog_of_eight_buckets_together_and_go_back(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    """As many segments as consumers: without the drain mode, one of them had it all to itself."""
    await set_policy(cluster, topic, enabled=False)
    await cluster.call("POST", f"{topic}/rebucket/0", params={"bucketCount": 8})
    wide = max(await cluster.active(topic))
    part = (await client.watch(topic)).layout.segments[wide].info
    keys = [key for key in map(b"key-%d".__mod__, range(2_000)) if hash32(key) >> 16 in part]
    producer = await client.create_producer(topic)
    await producer.send_many([(keys[n % len(keys)], b"%d" % n) for n in range(3_200)])
    await producer.flush()
    await cluster.split(topic, wide)
    seen: list[tuple[str, int, int, bytes, int]] = []
    consumers = [await client.subscribe(topic, "billing", name) for name in "abcdefgh"]
    # Else the first ones may be done before the last ones are there.
    await until(lambda: all(wide in dict(each.buckets) for each in consumers), WAIT_S)
    work = [
        asyncio.create_task(consuming(consumer, name, seen, 0.004))
        for consumer, name in zip(consumers, "abcdefgh", strict=True)
    ]
    await until(lambda: len(seen) >= 3_200, WAIT_S)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for _, segment_id, _, key, number in seen:
        assert segment_id == wide
        by_key[key].append(number)
    assert all(numbers == sorted(set(numbers)) for numbers in by_key.values())
    assert len(seen) == 3_200
    assert {name for name, *_ in seen} == set("abcdefgh")

    # When it is drained, each has a segment of its own again, whole.
    def back() -> bool:
        held = sorted(place for each in consumers for place in each.buckets)
        return len({segment for segment, _ in held}) == 9 and wide not in dict(held)

    await until(back, WAIT_S)
    await asyncio.gather(*(each.close() for each in consumers))
    await asyncio.gather(*work)
