"""What clients make of a segment that somebody has changed, or deleted, in Kafka itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.client import (
    Client,
    PositionGoneError,
    Segment,
    SegmentMissingError,
    StreamConsumer,
)
from support.commands import run_here
from support.quiet import QUIET
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, eventually

_COUNT = 80


def deleted(cluster: TopicCluster, kafka_topic: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    admin.delete_topics([kafka_topic])[kafka_topic].result(WAIT_S)


def unsealed(cluster: TopicCluster, kafka_topic: str) -> None:
    """As a tool does that restores what it knows of a topic."""
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    limit = ConfigEntry("max.message.bytes", "1048588", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, kafka_topic, incremental_configs=[limit])
    admin.incremental_alter_configs([topic])[topic].result(WAIT_S)


async def strayed(cluster: TopicCluster, kafka_topic: str, buckets: int) -> None:
    """Plain appends to each bucket, once Kafka takes them."""
    producer = Producer({**QUIET, "bootstrap.servers": cluster.kafka})
    left = set(range(buckets))

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            left.discard(message.partition() or 0)

    def append() -> bool:
        for bucket in left:
            producer.produce(
                kafka_topic,
                b"stray",
                partition=bucket,
                on_delivery=told,
                headers=[("none", None)],
            )
        producer.flush(WAIT_S)
        return not left

    async def is_done() -> bool:
        return await asyncio.to_thread(append)

    await eventually(is_done)


async def finding(cluster: TopicCluster, topic: str, segment_id: int, said: str) -> str:
    """What its controller tells of a segment, once it says so."""
    found: list[str] = []

    async def is_told() -> bool:
        stats = await cluster.call("GET", f"{topic}/stats")
        found[:] = [each for each in stats["segments"][str(segment_id)]["findings"] if said in each]
        return bool(found)

    await eventually(is_told)
    return found[0]


async def restored(cluster: TopicCluster, topic: str, segment_id: int) -> None:
    words = ("segments", "restore", topic, str(segment_id), "--yes", "--url", cluster.nodes[0].url)
    done = await asyncio.to_thread(run_here, *words)
    assert done.returncode == 0, done.stderr


async def refused(cluster: TopicCluster, kafka_topic: str) -> None:
    """Returns once Kafka refuses plain appends."""
    told: list[KafkaError | None] = []

    def append() -> bool:
        producer = Producer({**QUIET, "bootstrap.servers": cluster.kafka})
        producer.produce(kafka_topic, b"x", partition=0, on_delivery=lambda e, _: told.append(e))
        producer.flush(WAIT_S)
        error = told[-1]
        return error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    async def is_sealed() -> bool:
        return await asyncio.to_thread(append)

    await eventually(is_sealed)


async def drained(consumer: StreamConsumer, values: Sequence[bytes]) -> None:
    """It receives these, in any order, and nothing else; and commits them."""
    found: list[bytes] = []
    while len(found) < len(values):
        found += (await consumer.receive_many(timeout_s=WAIT_S)).values()
        consumer.acknowledge_all()
    assert sorted(found) == sorted(values)
    await consumer.flush(WAIT_S)


def values(count: int = _COUNT, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def sent(client: Client, topic: str, first: int = 0) -> dict[bytes, int]:
    """The segment of each value that was sent."""
    async with await client.create_producer(topic) as producer:
        results = [await producer.send(value, value) for value in values(first=first)]
    return {
        value: each.segment_id for value, each in zip(values(first=first), results, strict=True)
    }


async def segment(client: Client, topic: str, segment_id: int) -> Segment:
    watch = await client.watch(topic)
    try:
        return watch.layout.segments[segment_id]
    finally:
        await watch.close()


async def test_what_was_appended_behind_a_seal_is_delivered_to_nobody(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await sent(client, topic)
    await cluster.split(topic, 0)
    parent = await segment(client, topic, 0)
    unsealed(cluster, parent.kafka_topic)
    await strayed(cluster, parent.kafka_topic, parent.info.buckets)
    strays = await finding(cluster, topic, 0, "behind its logged ends")
    end = parent.info.end_offsets[0]
    assert f"partition 0 (ends at {end}): offsets {end} to" in strays
    await refused(cluster, parent.kafka_topic)
    await sent(client, topic, _COUNT)
    strays_of = ("segments", "strays", topic, "0", "--url", cluster.nodes[0].url)
    shown = await asyncio.to_thread(run_here, *strays_of)
    assert shown.stdout.splitlines()[:1] == [f"0@{end}\t-\tstray"]
    assert (await asyncio.to_thread(run_here, *strays_of, "--send-on")).returncode == 0
    all_of_them = [*values(2 * _COUNT), *([b"stray"] * parent.info.buckets)]
    async with await client.subscribe(topic, "billing") as ordered:
        await drained(ordered, all_of_them)
    async with await client.subscribe_queue(topic, "work") as queue:
        found: list[bytes] = []
        headed: list[bytes] = []
        while len(found) < len(all_of_them):
            batch = await queue.receive_many(WAIT_S)
            found += batch.values()
            headed += [each.value for each in batch if each.headers == [("none", None)]]
            queue.acknowledge_all()
        assert sorted(found) == sorted(all_of_them)
        assert headed == [b"stray"] * parent.info.buckets
    async with await client.subscribe_checkpoint(topic, "lake") as lake:
        found = []
        while len(found) < len(all_of_them):
            found += (await lake.receive_many(timeout_s=WAIT_S)).values()
            lake.saved(lake.checkpoint())
        assert sorted(found) == sorted(all_of_them)


@pytest.mark.parametrize("segments", [4])
async def test_a_segment_whose_topic_is_gone_keeps_no_other_one_waiting(
    cluster: TopicCluster, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = await sent(client, topic)
    lost = await segment(client, topic, 1)
    left = [value for value, segment_id in where.items() if segment_id != 1]
    gone = next(value for value, segment_id in where.items() if segment_id == 1)
    async with (
        await client.subscribe(topic, "billing") as live,
        await client.create_producer(topic) as producer,
    ):
        await drained(live, list(where))
        deleted(cluster, lost.kafka_topic)
        await finding(cluster, topic, 1, "Kafka has no such topic")
        for value in left:
            await producer.send(value, value)
        await drained(live, left)
        with pytest.raises(SegmentMissingError, match=lost.kafka_topic):
            await producer.send(gone, gone)
        async with await client.subscribe(topic, "new") as new:
            await drained(new, [*left, *left])

            await restored(cluster, topic, 1)

            async def is_sent() -> bool:
                """Once the producer has heard of the successor."""
                with contextlib.suppress(SegmentMissingError):
                    await producer.send(gone, gone)
                    return True
                return False

            await eventually(is_sent)
            await drained(live, [gone])
            await drained(new, [gone])
    assert any("consumer.segment_lost" in each for each in caplog.messages)


async def test_nobody_waits_for_a_sealed_segment_that_is_restored_and_a_gap_is_told(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await sent(client, topic)
    async with await client.subscribe_checkpoint(topic, "lake") as lake:
        await lake.receive_many(_COUNT // 4, timeout_s=WAIT_S)
        checkpoint = lake.checkpoint()
        lake.saved(checkpoint)
    await cluster.split(topic, 0)
    await sent(client, topic, _COUNT)
    deleted(cluster, (await segment(client, topic, 0)).kafka_topic)
    async with (
        await client.subscribe(topic, "billing") as ordered,
        await client.subscribe_queue(topic, "work") as queue,
    ):
        await finding(cluster, topic, 0, f"{_COUNT} messages at most, is lost")
        await restored(cluster, topic, 0)
        await drained(ordered, values(first=_COUNT))
        found: list[bytes] = []
        while len(found) < _COUNT:
            found += (await queue.receive_many(WAIT_S)).values()
            queue.acknowledge_all()
        assert sorted(found) == sorted(values(first=_COUNT))
    async with await client.subscribe_checkpoint(topic, "lake", checkpoint=checkpoint) as lake:
        with pytest.raises(PositionGoneError, match="lost with its Kafka topic"):
            await lake.receive(WAIT_S)
    async with await client.subscribe_checkpoint(topic, "lake") as lake:
        found = []
        while len(found) < _COUNT:
            found += (await lake.receive_many(timeout_s=WAIT_S)).values()
        assert sorted(found) == sorted(values(first=_COUNT))
