"""What a producer says of its batches is what Kafka has of them."""

from __future__ import annotations

import pytest

from anabranch.client import BatchStats, Producer
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.hand_made_topic import HandMadeTopic
from support.record_batches import batches_of
from support.waiting import until

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
@pytest.mark.parametrize(("segments", "buckets"), [(2, 3)])
async def test_each_bucket_has_the_batches_that_the_producer_counts(
    compression: str, kafka: EmbeddedKafka, made: HandMadeTopic
) -> None:
    # New partitions may refuse what comes first, and what is written again counts twice.
    other = await made.client.create_producer(made.name)
    await other.send_many((key, b"x") for key in _KEYS)
    with pytest.raises(InvalidInputError, match="count_batches=True"):
        other.stats()  # it was not asked to count
    await other.close()
    before = stored(kafka, made)
    producer = await made.client.create_producer(
        made.name, count_batches=True, compression=compression, linger_ms=20
    )
    await producer.send_many((key, b"x" * 100) for key in _KEYS * 20)
    # A bucket that gets little beside those that get much: each has its own figures.
    await producer.send(b"x", "key-0")
    await producer.flush()
    stats = await counted(producer, 20 * len(_KEYS) + 1)

    after = stored(kafka, made)
    assert [(each.segment_id, each.buckets) for each in stats] == [
        (segment_id, (bucket,)) for segment_id, bucket in after
    ]
    for each, old, new in zip(stats, before.values(), after.values(), strict=True):
        written = new[len(old) :]
        assert (each.batches, each.messages) == (len(written), sum(written))
        assert each.mean_messages == sum(written) / len(written)
        assert 0 < each.fill_ratio <= 1
        assert (each.bytes > 100 * each.messages) == (compression == "none")
