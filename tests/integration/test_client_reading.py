"""How consumers read Kafka itself: what is read ahead, and what is not there any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.client import Checkpoint, Client, Message, PositionGoneError, ReadSettings
from anabranch.client._consumer.assignment import Fetch, SegmentBucket
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.ordered import OrderedConsumer
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._stream.consumer import StreamConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.quiet import QUIET
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until


class Stored:
    """A Kafka topic of one partition."""

    def __init__(self, kafka: EmbeddedKafka, name: str) -> None:
        self.name = name
        self.kafka = {
            **QUIET,
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"{name}.group",
        }
        self._admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)

    def write(self, values: Sequence[bytes]) -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.kafka["bootstrap.servers"],
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )
        for value in values:
            producer.produce(self.name, value, partition=0)
        assert producer.flush(WAIT_S) == 0

    def remove(self, before: int) -> None:
        """As retention does."""
        place = TopicPartition(self.name, 0, before)
        self._admin.delete_records([place])[place].result(WAIT_S)

    def fetch(self, number: int = 1) -> Fetch:
        return Fetch(number, SegmentBucket(0, 0), self.name, None)


@asynccontextmanager
async def plane(
    stored: Stored,
    settings: ReadSettings | None = None,
    *,
    skips_gone: bool = True,
) -> AsyncIterator[tuple[DataPlane, asyncio.Event, ReadTrouble]]:
    told = asyncio.Event()
    trouble = ReadTrouble(told.set)
    made = DataPlane(
        stored.kafka,
        settings or ReadSettings(),
        told.set,
        trouble,
        skips_gone=skips_gone,
    )
    try:
        yield made, told, trouble
    finally:
        await made.close()


async def read(made: DataPlane, told: asyncio.Event, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(WAIT_S):
        while len(values) < count:
            told.clear()
            found = made.take()
            if found is None:
                await told.wait()
            else:
                values += [message.value() or b"" for message in found.messages]
    return values


async def test_no_more_bytes_are_read_ahead_than_are_allowed_and_all_come(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    budget = 8 * 1024 * 1024
    values = [b"%d" % number + b"x" * 100_000 for number in range(500)]
    stored = Stored(kafka, f"{topic_prefix}large")
    stored.write(values)
    async with plane(stored, ReadSettings(bytes_max=budget)) as (made, told, _):
        made.start(stored.fetch(), 0)
        await until(lambda: made._buffered_bytes >= budget / 4)
        most = made._buffered_bytes
        found: list[bytes] = []
        while len(found) < len(values):
            found += await read(made, told, 1)
            most = max(most, made._buffered_bytes)
        assert found == values
        assert most <= budget * 0.6, "what lies here and one batch, which are half, about"


async def filled(client: Client, topic: str, count: int) -> None:
    producer = await client.create_producer(topic)
    for number in range(count):
        await producer.post(b"%d" % number, "key")
    await producer.close()


async def received(consumer: OrderedConsumer, count: int) -> list[Message]:
    return [await consumer.receive(WAIT_S) for _ in range(count)]


def remove(cluster: TopicCluster, message: Message, before: int) -> TopicPartition:
    """As retention does, in the bucket of a message."""
    place = TopicPartition(message.raw.topic() or "", message.bucket, before)
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    admin.delete_records([place])[place].result(WAIT_S)
    return place


async def test_a_checkpoint_outside_of_what_kafka_has_is_refused_and_says_what_it_has(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await filled(client, topic, 10)
    async with await client.subscribe_checkpoint(topic, "lake") as consumer:
        message = (await received(consumer, 10))[5]
        incarnation = consumer.checkpoint().incarnation
    remove(cluster, message, 4)
    for position, why in ((11, "something else"), (3, "retention")):
        begun = Checkpoint(incarnation, {message.segment_id: {message.bucket: position}})
        async with await client.subscribe_checkpoint(topic, "lake", checkpoint=begun) as consumer:
            with pytest.raises(PositionGoneError) as refused:
                await consumer.receive(WAIT_S)
        said = str(refused.value)
        assert f"bucket {message.bucket} of segment {message.segment_id} of {topic}" in said
        assert f"from 4 to 10, exclusive, and the position to begin at is {position}" in said
        assert why in said
    async with await client.subscribe_checkpoint(topic, "lake") as consumer:
        assert [m.value for m in await received(consumer, 6)] == [b"%d" % n for n in range(4, 10)]
        assert consumer.checkpoint().position(message.segment_id, message.bucket) == 10


async def test_whoever_was_there_before_what_retention_removed_is_told_also_at_position_0(
    cluster: TopicCluster, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And an old checkpoint of how much of a segment that was read, and pruned, it lacks."""
    caplog.set_level(logging.WARNING)
    await filled(client, topic, 4)
    async with (
        await client.subscribe(topic, "billing") as billing,
        await client.subscribe_checkpoint(topic, "lake") as lake,
    ):
        await passed(billing, 4)
        bucket = (await received(lake, 4))[-1].bucket
        stored = lake.checkpoint()
        lake.saved(stored)
        await cluster.split(topic, 0)
        await until(lambda: len(billing.buckets) == len(lake.buckets) == 4)  # the children's
    await filled(client, topic, 10)
    values = [b"6", b"7", b"8", b"9"]
    async with await client.subscribe(topic, "all") as consumer:
        await passed(consumer, 4)
        last = (await received(consumer, 10))[-1]
    remove(cluster, last, 6)
    async with await client.subscribe(topic, "billing") as billing:
        assert [m.value for m in await received(billing, 4)] == values
    gone = [each for each in caplog.messages if "consumer.messages_gone" in each]
    assert len(gone) == 1
    assert ("position=0" in gone[0], "goes_on_at=6" in gone[0]) == (True, True)
    with pytest.raises(PositionGoneError, match=r"from 6 to 10, .* to begin at is 0: Kafka"):
        await read_on(client, topic, stored)
    async with await client.subscribe(topic, "a-new-one") as consumer:
        await passed(consumer, 4)
        assert [m.value for m in await received(consumer, 4)] == values
    assert sum("consumer.messages_gone" in each for each in caplog.messages) == 1
    await cluster.call("DELETE", f"{topic}/subscriptions/a-new-one")
    await cluster.rest("DELETE", f"/admin/v2/segments/{topic}/0000-ffff-0")
    named = {last.segment_id: {last.bucket: 6}}
    old = Checkpoint(stored.incarnation, {0: {bucket: 3}} | named)
    with pytest.raises(PositionGoneError, match=r"segment 0 of .* ended at 4, .* is 3: it"):
        await read_on(client, topic, old)
    read = Checkpoint(stored.incarnation, {0: {bucket: 4}} | named)
    assert (await read_on(client, topic, read)).value == b"6"


async def passed(consumer: StreamConsumer, count: int) -> None:
    """What a parent holds, so that its children come next."""
    consumer.acknowledge((await received(consumer, count))[-1])


async def read_on(client: Client, topic: str, checkpoint: Checkpoint) -> Message:
    async with await client.subscribe_checkpoint(topic, "lake", checkpoint=checkpoint) as consumer:
        return await consumer.receive(WAIT_S)


async def test_what_is_ended_and_begun_again_in_one_go_is_read_as_was_said_last(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}again")
    stored.write([b"%d" % number for number in range(10)])
    async with plane(stored) as (made, told, trouble):

        async def come(number: int, count: int) -> list[bytes]:
            values: list[bytes] = []
            while len(values) < count:
                told.clear()
                found = made.take()
                if found is None:
                    await told.wait()
                elif number in found.ends:  # what was read for others may come first
                    values += [message.value() or b"" for message in found.messages]
            return values

        async with asyncio.timeout(WAIT_S):
            made.start(stored.fetch(1), 8)
            assert await come(1, 2) == [b"8", b"9"]
            # Obeyed together, as nothing is waited for: once more, and once more.
            made.stop(1)
            made.start(stored.fetch(2), 1)
            made.stop(2)
            made.start(stored.fetch(3), 6)
            assert await come(3, 4) == [b"6", b"7", b"8", b"9"]
            made.stop(3)
            made.start(stored.fetch(4), 0)
            made.stop(4)
            stored.write([b"10"])
            made.start(stored.fetch(5), 9)
            assert await come(5, 2) == [b"9", b"10"]
        assert trouble.failure is None
