"""What a node knows of Kafka's brokers when it makes the Kafka topics of segments."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.broker.topics.placement import KafkaPlacement
from anabranch.channel.load.loads import LoadTable, SegmentKey
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.entities.segment import new_segment
from anabranch.core.topics.kafka_placement import Copies, KafkaBroker, KafkaSurvey, Room
from anabranch.core.topics.tasks import MakeSegments, SealSegments
from support.there import there

TOPIC = "public/default/orders"
SPLIT = MakeSegments(
    TOPIC, 42, (new_segment(1, 0, 0x7FFF, 1, (0,)), new_segment(2, 0x8000, 0xFFFF, 1, (0,)))
)
TWO = KafkaSurvey(
    {1: "a", 2: ""},
    {
        (42, 0): (Copies(1, (1, 2)), Copies(2, (2, 1))),
        (50, 0): (Copies(2, (2,)),),
        (51, 0): (Copies(None, (1,)),),
    },
)


class Answers:
    """A Kafka that gives these answers, one after the other."""

    def __init__(self, *surveys: KafkaSurvey | None) -> None:
        self._left = list(surveys)

    def look(self, timeout_s: float, *, whole: bool) -> KafkaSurvey | None:
        return self._left.pop(0)


def table() -> LoadTable:
    """One segment of two that somebody uses."""
    known = LoadTable()
    known.take(
        [
            (SegmentKey(TOPIC, 42, 0), SegmentLoad(10.0, 600.0, 20.0, 200.0, 1)),
            (SegmentKey("public/default/bills", 50, 0), SegmentLoad(1.0, 100.0, 0.0, 0.0, 1)),
        ]
    )
    return known


def seen(*surveys: KafkaSurvey | None) -> KafkaPlacement:
    """After as many looks as there are answers."""

    async def look() -> KafkaPlacement:
        placement = KafkaPlacement(table(), 10.0, 1, lambda: answers)
        for _ in surveys:
            await placement.look()
        await placement.close()
        return placement

    answers: Any = Answers(*surveys)
    return asyncio.run(look())


def test_what_brokers_carry_is_added_up_by_who_leads() -> None:
    assert seen(TWO).brokers == (KafkaBroker(1, "a", 400.0, 1, 3), KafkaBroker(2, "", 500.0, 2, 3))


def test_children_are_placed_as_if_their_parents_were_sealed_already() -> None:
    assert seen(TWO).room(MakeSegments(TOPIC, 42, SPLIT.segments, (1,))) == Room(
        1,
        (KafkaBroker(1, "a", 0.0, 1, 3), KafkaBroker(2, "", 100.0, 2, 3)),
        frozenset({1}),
        expected=400.0,
    )


def test_nothing_is_placed_on_a_single_broker_nor_for_what_makes_no_topics() -> None:
    assert seen(KafkaSurvey({1: ""})).room(SPLIT) is None
    assert seen(TWO).room(SealSegments(TOPIC, 42, SPLIT.segments)) is None


def test_what_kafka_does_not_answer_leaves_what_was_known() -> None:
    assert seen().room(SPLIT) == Room()
    assert seen(None).room(SPLIT) == Room()
    known = seen(TWO, None)
    assert known.survey == TWO
    assert there(known.room(SPLIT)).number == 1
