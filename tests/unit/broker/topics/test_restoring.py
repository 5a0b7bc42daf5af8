"""A node lets a topic go on without a segment whose Kafka topic is gone."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.topics.restoring import restore
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import Place
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.log.records import TopicChange
from support.kept_topic import NAME, KeptTopic, kept_topic
from support.memory_cluster import until
from support.memory_positions import MemoryPositions


def gone(kept: KeptTopic) -> None:
    del kept.cluster.segments.partitions[kept.kafka]


def records(kept: KeptTopic, monkeypatch: pytest.MonkeyPatch) -> list[TopicChange]:
    """What the node proposes of the topic from now on."""
    found: list[TopicChange] = []
    proposal = kept.topics.access.proposal

    def noted(*args: object, **fields: object) -> TopicChange:
        found.append(made := proposal(*args, **fields))  # type: ignore[arg-type]  # handed on
        return made

    monkeypatch.setattr(kept.topics.access, "proposal", noted)
    return found


async def test_an_active_segment_is_replaced_and_the_log_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kept_topic() as kept:
        await kept.made()
        await kept.look()
        with pytest.raises(PreconditionError, match=f"Kafka has its topic, {kept.kafka}"):
            await restore(kept.topics, NAME, 0)
        with pytest.raises(NotFoundError, match="Segment not found: 7; the active segments are 0"):
            await restore(kept.topics, NAME, 7)
        proposed = records(kept, monkeypatch)
        gone(kept)
        await restore(kept.topics, NAME, 0)
        (begin,) = proposed
        assert (begin.operation, begin.end_offsets) == (Operation.RESTORE, (10, 10, 10, 10))
        lost, child = kept.topics.topic(NAME).segments
        assert (lost.end_offsets, child.is_active) == ((0,) * 4, True)
        assert (child.start, child.end, child.buckets) == (lost.start, lost.end, lost.buckets)
        await restore(kept.topics, NAME, 0)
        assert proposed == [begin], "it was done before"


async def test_nobody_waits_for_a_sealed_segment_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kept_topic() as kept:
        await kept.made()
        await kept.topics.split(NAME, 0)
        proposed = records(kept, monkeypatch)
        told = kept.topics.access.service.workers.look
        gone(kept)
        absent = told([kept.kafka])
        absent.result()
        kept.cluster.segments.partitions[kept.kafka] = 4
        monkeypatch.setattr(kept.topics.access.service.workers, "look", lambda _: absent)
        with pytest.raises(PreconditionError, match="is not lost"):
            await restore(kept.topics, NAME, 0)  # who was asked is behind
        gone(kept)
        await restore(kept.topics, NAME, 0)
        (lost,) = proposed
        said = (lost.move, lost.segment_ids, lost.end_offsets)
        assert said == (TopicMove.LOST, (0,), (10, 10, 10, 10))
        await until(lambda: kept.topics.topic(NAME).segments[0].end_offsets == (0,) * 4)
        offsets = MemoryPositions.offsets

        def there(self: MemoryPositions, places: list[Place], *rest: Any) -> dict[Place, int]:
            if any(topic not in kept.cluster.segments.partitions for topic, _ in places):
                raise KafkaUnreachableError("Kafka does not know the topic")
            return offsets(self, places, *rest)

        monkeypatch.setattr(MemoryPositions, "offsets", there)
        await kept.look()
        await until(lambda: kept.drained() == (0,))
