"""What a producer says of its batches is what Kafka has of them."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import BatchStats, Client, Producer
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.hand_made_topic import HandMadeTopic
from support.record_batches import batches_of
from support.waiting import until

pytestmark = pytest.mark.integration

_KEYS = [f"key-{number}" for number in range(200)]


def stored(kafka: EmbeddedKafka, topic: HandMadeTopic) -> dict[tuple[int, int], list[int]]:
    """Records of each batch, by segment and bucket."""
    return {
        (part.segment_id, bucket): batches_of(kafka, topic.kafka_topic(part), bucket)
        for part in topic.layout.segments.values()
        for bucket in range(part.buckets)
    }


async def counted(producer: Producer, messages: int) -> list[BatchStats]:
    """What it says once it has counted that many."""
    await until(lambda: sum(each.messages for each in producer.stats()) >= messages)
    return producer.stats()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_each_bucket_has_the_batches_that_the_producer_counts(
    kafka: EmbeddedKafka, topic_prefix: str, compression: str
) -> None:
    async def test() -> None:
        async with (
            HandMadeTopic(topic_prefix, kafka.bootstrap_servers, segments=2, buckets=3) as topic,
            Client(topic.url) as client,
        ):
            # New partitions may refuse what comes first, and what is written again counts twice.
            other = await client.create_producer(topic.name)
            await other.send_many((key, b"x") for key in _KEYS)
            await other.close()
            before = stored(kafka, topic)
            producer = await client.create_producer(
                topic.name, count_batches=True, compression=compression, linger_ms=20
            )
            await producer.send_many((key, b"x" * 100) for key in _KEYS * 20)
            # A bucket that gets little beside those that get much: each has its own figures.
            await producer.send(b"x", "key-0")
            await producer.flush()
            stats = await counted(producer, 20 * len(_KEYS) + 1)

            after = stored(kafka, topic)
            assert [(each.segment_id, each.buckets) for each in stats] == [
                (segment_id, (bucket,)) for segment_id, bucket in after
            ]
            for each, old, new in zip(stats, before.values(), after.values(), strict=True):
                written = new[len(old) :]
                assert (each.batches, each.messages) == (len(written), sum(written))
                assert each.mean_messages == sum(written) / len(written)
                assert 0 < each.fill_ratio <= 1
                assert (each.bytes > 100 * each.messages) == (compression == "none")

    asyncio.run(test())


def test_a_child_is_counted_from_its_beginning(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    async def test() -> None:
        async with (
            HandMadeTopic(topic_prefix, kafka.bootstrap_servers, segments=1, buckets=2) as topic,
            Client(topic.url) as client,
        ):
            producer = await client.create_producer(topic.name, count_batches=True)
            await producer.send_many((key, b"x") for key in _KEYS)
            await producer.flush()
            await counted(producer, len(_KEYS))
            await topic.split(0)
            await until(lambda: len(producer.layout.active) == 2)
            await producer.send_many((key, b"x") for key in _KEYS)
            await producer.flush()
            await until(lambda: {each.segment_id for each in producer.stats()} == {1, 2})
            stats = await counted(producer, len(_KEYS))
            assert sum(each.messages for each in stats) == len(_KEYS)

    asyncio.run(test())


def test_a_producer_that_was_not_asked_to_count_says_how_to_ask(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def test() -> None:
        async with (
            HandMadeTopic(topic_prefix, kafka.bootstrap_servers) as topic,
            Client(topic.url) as client,
        ):
            producer = await client.create_producer(topic.name)
            with pytest.raises(InvalidInputError, match="count_batches=True"):
                producer.stats()

    asyncio.run(test())
