"""How consumers read Kafka itself: what is read ahead, and what is not there any more."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.client import (
    Checkpoint,
    Client,
    DeadlineError,
    Message,
    PositionGoneError,
    ReadSettings,
)
from anabranch.client._consumer.assignment import Fetch, SegmentBucket
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.group_offsets import GroupOffsets
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._consumer.stream import OrderedConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, run_on
from support.waiting import until

pytestmark = pytest.mark.integration

_WAIT_S = 60.0


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
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(_WAIT_S)

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
        assert producer.flush(_WAIT_S) == 0

    def remove(self, before: int) -> None:
        """As retention does."""
        place = TopicPartition(self.name, 0, before)
        self._admin.delete_records([place])[place].result(_WAIT_S)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(_WAIT_S)

    def fetch(self, number: int = 1) -> Fetch:
        return Fetch(number, SegmentBucket(0, 0), self.name, None)


@asynccontextmanager
async def plane(
    stored: Stored,
    settings: ReadSettings | None = None,
    *,
    skips_gone: bool = True,
    missing_s: float = 30.0,
) -> AsyncIterator[tuple[DataPlane, asyncio.Event, ReadTrouble]]:
    told = asyncio.Event()
    trouble = ReadTrouble(told.set)
    made = DataPlane(
        stored.kafka,
        settings or ReadSettings(),
        told.set,
        trouble,
        skips_gone=skips_gone,
        missing_s=missing_s,
    )
    try:
        yield made, told, trouble
    finally:
        await made.close()


async def read(made: DataPlane, told: asyncio.Event, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(_WAIT_S):
        while len(values) < count:
            told.clear()
            found = made.take()
            if found is None:
                await told.wait()
            else:
                values += [message.value() or b"" for message in found.messages]
    return values


def test_no_more_bytes_are_read_ahead_than_are_allowed_and_all_come(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    budget = 8 * 1024 * 1024
    values = [b"%d" % number + b"x" * 100_000 for number in range(500)]
    stored = Stored(kafka, f"{topic_prefix}large")
    stored.write(values)

    async def test() -> None:
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

    asyncio.run(test())


async def filled(client: Client, topic: str, count: int) -> None:
    producer = await client.create_producer(topic)
    for number in range(count):
        await producer.post(b"%d" % number, "key")
    await producer.close()


async def received(consumer: OrderedConsumer, count: int) -> list[Message]:
    return [await consumer.receive(_WAIT_S) for _ in range(count)]


def remove(cluster: TopicCluster, message: Message, before: int) -> TopicPartition:
    """As retention does, in the bucket of a message."""
    place = TopicPartition(message.raw.topic() or "", message.bucket, before)
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    admin.delete_records([place])[place].result(_WAIT_S)
    return place


def test_a_checkpoint_outside_of_what_kafka_has_is_refused_and_says_what_it_has(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, name: str) -> None:
        topic = f"topic://{name}"
        await filled(client, topic, 10)
        async with await client.subscribe_checkpoint(topic, "lake") as consumer:
            message = (await received(consumer, 10))[5]
            incarnation = consumer.checkpoint().incarnation
        remove(cluster, message, 4)
        for position, why in ((11, "something else"), (3, "retention")):
            begun = Checkpoint(incarnation, {message.segment_id: {message.bucket: position}})
            async with await client.subscribe_checkpoint(
                topic, "lake", checkpoint=begun
            ) as consumer:
                with pytest.raises(PositionGoneError) as refused:
                    await consumer.receive(_WAIT_S)
            said = str(refused.value)
            assert f"bucket {message.bucket} of segment {message.segment_id} of {name}" in said
            assert f"from 4 to 10, exclusive, and the position to begin at is {position}" in said
            assert why in said
        async with await client.subscribe_checkpoint(topic, "lake") as consumer:
            assert [m.value for m in await received(consumer, 6)] == [
                b"%d" % n for n in range(4, 10)
            ]
            assert consumer.checkpoint().position(message.segment_id, message.bucket) == 10

    run_on(cluster, body)


def test_a_subscription_whose_position_retention_removed_goes_on_at_what_is_left(
    cluster: TopicCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(cluster: TopicCluster, client: Client, name: str) -> None:
        topic = f"topic://{name}"
        await filled(client, topic, 10)
        async with await client.subscribe(topic, "billing") as consumer:
            message = (await received(consumer, 3))[-1]
            assert consumer.acknowledge(message)
        remove(cluster, message, 6)
        async with await client.subscribe(topic, "billing") as consumer:
            assert [m.value for m in await received(consumer, 4)] == [b"6", b"7", b"8", b"9"]
        async with await client.subscribe(topic, "a-new-one") as consumer:
            assert [m.value for m in await received(consumer, 4)] == [b"6", b"7", b"8", b"9"]

    with caplog.at_level(logging.WARNING):
        run_on(cluster, body)
    assert caplog.text.count("position_gone") == 1, "who begins at the beginning misses nothing"
    assert "messages_gone" not in caplog.text


def test_what_is_committed_is_committed_again_before_kafka_forgets_it(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, name: str) -> None:
        topic = f"topic://{name}"
        await filled(client, topic, 10)
        async with await client.subscribe(topic, "billing", commit_again_s=0.2) as consumer:
            message = (await received(consumer, 10))[-1]
            assert consumer.acknowledge(message)
            await consumer.flush()
            stats = await cluster.call("GET", f"{name}/stats")
            group_id = stats["subscriptions"]["billing"]["groupId"]
            kafka = {**QUIET, "bootstrap.servers": cluster.kafka, "group.id": group_id}
            place = (message.raw.topic() or "", message.bucket)
            group = GroupOffsets(kafka, 10.0)
            try:
                await group.commit({place: 0}, math.inf)  # nobody has committed anything
                deadline = time.monotonic() + _WAIT_S
                while await group.committed([place]) != {place: 10}:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)
            finally:
                await asyncio.to_thread(group.close)

    run_on(cluster, body)


def test_who_waits_in_vain_is_told_what_kafka_said_last(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, name: str) -> None:
        topic = f"topic://{name}"
        await filled(client, topic, 1)
        async with (
            Client(cluster.url, kafka={"security.protocol": "ssl"}) as stranger,
            await stranger.subscribe(topic, "billing") as consumer,
        ):
            deadline = time.monotonic() + _WAIT_S
            said = ""
            while "Kafka said last" not in said:
                assert time.monotonic() < deadline, said
                with pytest.raises(DeadlineError) as waited:
                    await consumer.receive(0.5)
                said = str(waited.value)

    run_on(cluster, body)


def test_a_topic_that_kafka_does_not_have_is_an_error_to_who_asks_for_it(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}there")

    async def test() -> None:
        async with plane(stored) as (made, _, _):
            await made.warm([stored.name])
            with pytest.raises(KafkaException) as refused:
                await made.warm([f"{stored.name}.not"])
            assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    asyncio.run(test())


def test_a_topic_that_is_deleted_and_does_not_come_back_ends_the_reading(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}deleted")
    stored.write([b"0"])

    async def test() -> None:
        async with plane(stored, missing_s=3.0) as (made, told, trouble):
            made.start(stored.fetch(), 0)
            assert await read(made, told, 1) == [b"0"]
            stored.delete()
            await until(lambda: trouble.failure is not None, _WAIT_S)
            assert stored.name in str(trouble.failure)

    asyncio.run(test())


def test_what_is_ended_and_begun_again_in_one_go_is_read_as_was_said_last(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}again")
    stored.write([b"%d" % number for number in range(10)])

    async def test() -> None:
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

            async with asyncio.timeout(_WAIT_S):
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

    asyncio.run(test())


def test_what_retention_removed_is_passed_over_with_a_warning(
    kafka: EmbeddedKafka, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(kafka, f"{topic_prefix}removed")
    stored.write([b"%d" % number for number in range(10)])
    stored.remove(6)

    async def test() -> None:
        async with plane(stored) as (made, told, trouble):
            made.start(stored.fetch(), 2)
            assert await read(made, told, 4) == [b"6", b"7", b"8", b"9"]
            assert trouble.failure is None

    with caplog.at_level(logging.WARNING):
        asyncio.run(test())
    assert "messages_gone" in caplog.text


def test_whoever_keeps_positions_learns_of_a_gap_by_a_failure(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}removed")
    stored.write([b"%d" % number for number in range(10)])
    stored.remove(6)

    async def test() -> None:
        async with plane(stored, skips_gone=False) as (made, _, trouble):
            made.start(stored.fetch(), 2)
            await until(lambda: trouble.failure is not None)
            assert "offset 2" in str(trouble.failure)
            assert stored.name in str(trouble.failure)

    asyncio.run(test())


def test_a_group_is_asked_what_it_committed_and_kafka_what_it_has(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    stored = Stored(kafka, f"{topic_prefix}ranges")
    stored.write([b"%d" % number for number in range(10)])
    stored.remove(4)
    place = (stored.name, 0)

    async def test() -> None:
        group = GroupOffsets(stored.kafka, 10.0, lambda: 5.0)
        try:
            assert await group.ranges([place]) == {place: (4, 10)}
            assert await group.committed([place]) == {}
            assert await group.commit({place: 7}, until=6.0)
            assert not await group.commit({place: 9}, until=4.0)
            assert await group.committed([place]) == {place: 7}
        finally:
            await asyncio.to_thread(group.close)

    asyncio.run(test())
