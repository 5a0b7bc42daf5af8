"""What a node says of segments whose Kafka topics somebody else has changed, and what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.channel.errors import KafkaRefusedError
from anabranch.core.topics.kafka_names import kafka_topic
from support.kept_topic import NAME, KeptTopic, kept_topic
from support.memory_cluster import until


@asynccontextmanager
async def sealed() -> AsyncIterator[KeptTopic]:
    """A topic of a sealed segment, with 10 records in each bucket, and two active ones."""
    async with kept_topic() as kept:
        kept.topics.looks.again_s = 0.0
        await kept.topics.split(NAME, 0)
        await until(lambda: len(kept.topics.topic(NAME).segments) == 3)
        await kept.topics.looks.round()
        assert told(kept) == []
        yield kept


def told(kept: KeptTopic, segment_id: int = 0) -> list[str]:
    return kept.topics.looks.of(NAME, kept.topics.topic(NAME).incarnation, segment_id)


async def test_a_seal_that_is_gone_is_made_again_and_what_came_is_named() -> None:
    async with sealed() as kept:
        segments = kept.cluster.segments
        segments.settings[kept.kafka] = {"max.message.bytes": "1000"}
        segments.ends[kept.kafka] = [10, 12, 10, 11]
        segments.denied_seal = KafkaRefusedError("it may not")
        await kept.topics.looks.round()
        assert "it is sealed, but max.message.bytes is 1000 and not 78" in told(kept)
        segments.denied_seal = None
        await kept.topics.looks.round()
        assert kept.kafka not in segments.settings, "it is sealed again"
        (strays,) = told(kept)
        assert "3 messages behind" in strays
        assert "partition 1 (ends at 10): offsets 10 to 11" in strays
        await kept.topics.looks.round()
        assert told(kept) == [strays], "it is told once, and is true for as long as it is"
        assert segments.calls.count("seal") == 3, "once by the split, and twice tried"
        said = f"segment 0000-ffff-0 of topic://{NAME}: {strays}"
        assert said in kept.node.operations.concerns()


async def test_a_topic_that_is_gone_or_another_one_is_named_until_it_is_there() -> None:
    async with sealed() as kept:
        segments = kept.cluster.segments
        count = segments.partitions.pop(kept.kafka)
        await kept.topics.looks.round()
        assert ["Kafka has no such topic" in each for each in told(kept)] == [True]
        (family,) = kept.topics.looks.collect()
        (sample,) = family.samples
        assert (sample.labels, sample.value) == ({"topic": NAME, "finding": "missing"}, 1)
        segments.partitions[kept.kafka] = count
        await kept.topics.looks.round()
        assert told(kept) == []
        kept.topics.looks._ids.clear()  # as of a controller that has never seen the first ones
        for number, part in enumerate(kept.topics.topic(NAME).segments):
            assert part.topic_id == "first", "the log knows it"
            topic = kept.topics.topic(NAME)
            where = kafka_topic(kept.topics.access.service.prefix, NAME, topic.incarnation, part)
            segments.ids[where] = "second"
            await kept.topics.looks.round()
            assert ["made anew" in each for each in told(kept, number)] == [True]


async def test_what_one_look_finds_and_the_next_does_not_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sealed() as kept:
        looks: list[list[str]] = []
        behind = kept.topics.access.service.workers.look

        def look(names: list[str]) -> object:
            """As a broker says that is behind the log."""
            looks.append(names)
            segments = kept.cluster.segments
            if len(looks) == 1:
                segments.settings[kept.kafka] = {"max.message.bytes": "1000"}
            future = behind(names)
            future.result()
            segments.settings.clear()
            return future

        monkeypatch.setattr(kept.topics.access.service.workers, "look", look)
        await kept.topics.looks.round()
        assert looks[1:] == [[kept.kafka]]
        assert told(kept) == []
        assert kept.cluster.segments.calls.count("seal") == 1
