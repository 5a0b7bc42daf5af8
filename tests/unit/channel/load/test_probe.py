"""What Kafka does not answer keeps nobody else's answer back: its leaders are doubles."""

from __future__ import annotations

import time
from typing import Any, cast

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.segments.sealing import SegmentTopic
from support.told_offsets import Leaders
from support.waiting import WAIT_S

DEAF = SegmentTopic("deaf", 1)
TIMEOUT_S = 0.2


def probe_of(kafka: Leaders) -> LoadProbe:
    return LoadProbe(cast(KafkaConnection, kafka))


def ends(probe: LoadProbe, topics: list[SegmentTopic], count: int) -> dict[str, Any]:
    """Asks until so many are told of: a busy machine may take all of a question's time."""
    deadline = time.monotonic() + WAIT_S
    while len(found := probe.ends(topics, TIMEOUT_S)) < count and time.monotonic() < deadline:
        pass
    return found


def test_a_partition_that_is_not_answered_for_keeps_no_other_back_however_many_there_are() -> None:
    topics = [SegmentTopic(f"t{number}", 4) for number in range(2_000)]
    kafka = Leaders({DEAF.name: [2], **{topic.name: [1] * 4 for topic in topics}}, frozenset({2}))
    found = ends(probe_of(kafka), [DEAF, *topics], len(topics))
    assert found == {topic.name: (5,) * 4 for topic in topics}


def test_nor_a_topic_that_must_be_learnt_of_first() -> None:
    kafka = Leaders({DEAF.name: [2]}, frozenset({2}))
    probe = probe_of(kafka)
    asked = [DEAF, SegmentTopic("new", 1)]
    assert probe.ends(asked, TIMEOUT_S) == {}
    kafka.topics["new"] = [1]
    assert ends(probe, asked, 1) == {"new": (5,)}


def test_a_topic_of_which_not_all_partitions_are_told_has_no_end() -> None:
    kafka = Leaders({"a": [1, 2], "b": [1, 1]}, frozenset({2}))
    assert ends(probe_of(kafka), [SegmentTopic("a", 2), SegmentTopic("b", 2)], 1) == {"b": (5, 5)}
