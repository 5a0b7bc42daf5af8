"""Kafkas of makes on which seals are unproven, or do not hold: who is told, and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka import topics
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.makes import MAKES, Make, Proof
from anabranch.channel.kafka.topics import Topics, TopicSettings, check_kafka, ensure_topics
from anabranch.core.errors import AnabranchError
from support.mock_kafka import MockKafka
from support.waiting import WAIT_S


@pytest.fixture(scope="module")
def mock() -> Iterator[MockKafka]:
    with MockKafka("t") as running:
        yield running


def _of(proof: Proof) -> list[Make]:
    return [make for make in MAKES if make.seal is proof]


@pytest.mark.parametrize("make", _of(Proof.NONE), ids=lambda make: make.name)
def test_a_kafka_on_which_no_seal_holds_is_refused(
    mock: MockKafka, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    monkeypatch.setattr(topics, "make_of", lambda *_: make)
    with pytest.raises(KafkaRefusedError, match=f"{make.name}: .*bootstrapServers"):
        check_kafka(KafkaConnection(mock.servers), WAIT_S)


@pytest.mark.parametrize("make", _of(Proof.UNPROVEN), ids=lambda make: make.name)
def test_a_kafka_on_which_no_seal_is_proven_is_told_once_before_any_topic_is_made(
    mock: MockKafka, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    monkeypatch.setattr(topics, "make_of", lambda *_: make)
    told: list[Make] = []
    kafka = KafkaConnection(mock.servers)
    with pytest.raises(AnabranchError):  # the mock makes no topics
        ensure_topics(kafka, Topics("a."), TopicSettings(), 2.0, told.append)
    assert told == [make]
