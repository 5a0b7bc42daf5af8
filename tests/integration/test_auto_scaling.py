"""Topics that change their segments by themselves, on a real Kafka with real clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer as KafkaProducer

from anabranch.client import Client, ClosedError, StreamConsumer
from anabranch.core.hashing import hash32
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.quiet import QUIET
from support.topic_cluster import MISSED_SOON, TopicCluster, run_on, topic_cluster
from support.traffic import Traffic, stored, wrong
from support.waiting import eventually, until

pytestmark = pytest.mark.integration

_WAIT_S = 60.0
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
def paced(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("paced")
    with topic_cluster(kafka, f"{folder.name}.", folder, *_PACE) as running:
        yield running


async def set_policy(cluster: TopicCluster, topic: str, **fields: Any) -> None:
    await cluster.call("POST", f"{topic}/autoScalePolicy", json={**_POLICY, **fields})


async def grown(cluster: TopicCluster, topic: str, count: int) -> None:
    """Waits until there are so many active segments, or more: who looks late sees more."""

    async def enough() -> bool:
        return len(await cluster.active(topic)) >= count

    await eventually(enough, _WAIT_S)


async def scaled(cluster: TopicCluster, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.call("GET", f"{topic}/stats"))["autoScale"]
    return found


def test_a_topic_follows_its_load_out_and_in_and_keeps_every_message_in_order(
    paced: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await set_policy(cluster, topic)
        producer = await client.create_producer(topic)
        traffic = Traffic(producer, _KEYS, pause_s=0.005)
        await grown(cluster, topic, 4)
        sent = await traffic.stop()
        splits = [each["action"].split()[0] for each in (await scaled(cluster, topic))["decisions"]]
        assert set(splits) >= {"split"}
        watch = await client.watch(topic)
        await until(lambda: len(watch.layout.active) == 1, _WAIT_S)
        assert wrong(stored(cluster.kafka, watch.layout), sent) == []

    run_on(paced, body)


def test_plain_clients_of_kafka_make_a_topic_scale_too(paced: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await set_policy(cluster, topic)
        watch = await client.watch(topic)
        producer = KafkaProducer({**QUIET, "bootstrap.servers": cluster.kafka})

        async def write() -> None:
            while True:
                for bucket in range(20):
                    producer.produce(watch.layout.active[0].kafka_topic, b"x", partition=bucket % 4)
                producer.poll(0)
                await asyncio.sleep(0.02)

        writing = asyncio.create_task(write())
        try:
            await grown(cluster, topic, 2)
        finally:
            writing.cancel()
            producer.purge()
            await asyncio.to_thread(producer.flush, 5)

    run_on(paced, body)


def test_a_hot_key_does_not_cause_a_storm_of_splits(paced: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await set_policy(cluster, topic, maxSegments=64, mergeMsgRateInThreshold=0)
        producer = await client.create_producer(topic)
        traffic = Traffic(producer, [b"hot"], pause_s=0.005)
        await grown(cluster, topic, 4)
        # The first split parted nothing, so the next had to wait twice as long, and so on.
        decisions = (await scaled(cluster, topic))["decisions"]
        times = [each["atMs"] for each in reversed(decisions) if each["action"] != "none"]
        waits = [after - before for before, after in pairwise(times)]
        assert len(waits) >= 2
        assert all(wait >= 500 * 2**number for number, wait in enumerate(waits, 1))
        await traffic.stop()

    run_on(paced, body)


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


def test_a_second_consumer_gets_buckets_of_its_own_without_a_split(paced: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await set_policy(cluster, topic)
        first = await client.subscribe(topic, "billing", "a")
        await until(lambda: first.buckets == [(0, 0), (0, 1), (0, 2), (0, 3)], _WAIT_S)
        second = await client.subscribe(topic, "billing", "b")
        await until(lambda: second.buckets == [(0, 2), (0, 3)], _WAIT_S)
        assert first.buckets == [(0, 0), (0, 1)]
        assert await cluster.active(topic) == [0]

    run_on(paced, body)


def test_eight_consumers_drain_a_sealed_backlog_of_eight_buckets_together_and_go_back(
    paced: TopicCluster,
) -> None:
    """As many segments as consumers: without the drain mode, one of them had it all to itself."""

    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
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
        await until(lambda: all(wide in dict(each.buckets) for each in consumers), _WAIT_S)
        work = [
            asyncio.create_task(consuming(consumer, name, seen, 0.004))
            for consumer, name in zip(consumers, "abcdefgh", strict=True)
        ]
        await until(lambda: len(seen) >= 3_200, _WAIT_S)
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

        await until(back, _WAIT_S)
        await asyncio.gather(*(each.close() for each in consumers))
        await asyncio.gather(*work)

    run_on(paced, body, 8)


def test_cooldowns_survive_the_controller(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        low = {"splitMsgRateInThreshold": 40, "mergeMsgRateInThreshold": 0}
        await set_policy(cluster, topic, splitCooldownSeconds=3600, **low)
        producer = await client.create_producer(topic)
        traffic = Traffic(producer, _KEYS, pause_s=0.005)
        await grown(cluster, topic, 2)
        watch = await client.watch(topic)
        controller = watch.layout.controller_url
        cluster.node_at(controller).kill()

        async def looked() -> bool:
            with contextlib.suppress(AssertionError, httpx.HTTPError):  # nobody may own it a while
                return "split cooldown" in (await scaled(cluster, topic))["now"]["why"]
            return False

        await eventually(looked, _WAIT_S)
        assert len(await cluster.active(topic)) == 2
        await traffic.stop()

    with topic_cluster(kafka, topic_prefix, tmp_path, *_PACE, *MISSED_SOON) as running:
        run_on(running, body)
