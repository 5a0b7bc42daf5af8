"""What Kafka does not answer keeps nobody else's answer back: its client is a double."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.segments.sealing import SegmentTopic
from support.waiting import WAIT_S

DEAF = SegmentTopic("deaf", 1)
TIMEOUT_S = 0.2


class Answer(NamedTuple):
    offset: int


class Kafka:
    """Connection and admin client in one. Nothing is heard of "deaf", ever; what is new is not
    known before all topics were asked for.
    """

    def __init__(self) -> None:
        self.new: set[str] = set()

    def admin(self) -> Kafka:
        return self

    def consumer(self, **_: object) -> None:
        return None

    def list_topics(self, name: str | None, timeout: float) -> None:
        self.new.discard(name or "")

    def list_offsets(
        self, asked: Mapping[TopicPartition, object], request_timeout: float
    ) -> dict[TopicPartition, Future[Answer]]:
        answers: dict[TopicPartition, Future[Answer]] = {}
        for place in asked:
            answer = answers[place] = Future()
            if place.topic in self.new:
                error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                answer.set_exception(KafkaException(error))
            elif place.topic != DEAF.name:
                answer.set_result(Answer(5))
        return answers


def probe_of(kafka: Kafka) -> LoadProbe:
    return LoadProbe(cast(KafkaConnection, kafka))


def test_a_partition_that_is_not_answered_for_keeps_no_other_back_however_many_there_are() -> None:
    topics = [SegmentTopic(f"t{number}", 4) for number in range(2_000)]
    ends = probe_of(Kafka()).ends([DEAF, *topics], TIMEOUT_S)
    assert ends == {topic.name: (5,) * 4 for topic in topics}


def test_nor_a_topic_that_must_be_learnt_of_first() -> None:
    kafka = Kafka()
    kafka.new.add("new")
    probe, deadline = probe_of(kafka), time.monotonic() + WAIT_S
    found: dict[str, Any] = {}
    while not found and time.monotonic() < deadline:  # a busy machine may take all of its time
        found = probe.ends([DEAF, SegmentTopic("new", 1)], TIMEOUT_S)
    assert found == {"new": (5,)}
