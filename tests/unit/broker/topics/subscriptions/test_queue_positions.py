"""What Kafka's answers on share groups mean to the byte, and what is remembered of its brokers."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import KafkaError

from anabranch.broker.topics.subscriptions import queue_positions
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.segments.positions import GroupPositions
from anabranch.core.subscriptions.known_positions import CommittedPosition
from anabranch.wire.kafka.protocol import KafkaProtocolError, ResponseReader, text
from anabranch.wire.varint import varint

BROKERS = [("k1", 9092), ("k2", 9092)]
DEADLINE_S = 100.0
PLACES = [("orders", 0), ("orders", 1), ("orders", 2)]


def answer(version: int, *parts: tuple[int, int, int, int], error: int = 0) -> bytes:
    """Of one group and topic; of each partition: its number, start, what is left, and an error."""
    body = struct.pack(">i", 0) + varint(2) + text("g") + varint(2) + text("orders") + bytes(16)
    body += varint(len(parts) + 1)
    for number, start, left, wrong in parts:
        body += struct.pack(">iqi", number, start, 7)
        body += struct.pack(">q", left) if version else b""
        body += struct.pack(">h", wrong) + varint(0) + varint(0)
    return body + varint(0) + struct.pack(">h", error) + text("why") + varint(0) + varint(0)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], bytes]:
    """What each broker answers in each version; one that has no answer does not know it."""
    answers: dict[tuple[str, int], bytes] = {}

    class Connection:
        def __init__(self, address: tuple[str, int], *_: object) -> None:
            self._host = address[0]

        def ask(self, question: int, version: int, body: bytes) -> ResponseReader:
            found = answers.get((self._host, version))
            if found is None:
                raise KafkaProtocolError("it does not know that version")
            return ResponseReader(found)

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(queue_positions, "BrokerConnection", Connection)
    monkeypatch.setattr(KafkaPositions, "brokers", lambda *_: BROKERS)
    return answers


def keeper() -> KafkaPositions:
    return KafkaPositions(KafkaConnection("nowhere:1"))


def test_a_queue_goes_on_where_kafka_says_and_partitions_with_an_error_are_not_told(
    kafka: dict[tuple[str, int], bytes],
) -> None:
    kafka["k1", 1] = answer(1, (0, 5, 3, 0), (1, -1, -1, 0), (2, 9, 9, 3))
    found = keeper().queue("g", PLACES, DEADLINE_S)
    assert found == {("orders", 0): (5, 3), ("orders", 1): (0, -1)}


def test_an_older_kafka_tells_no_number_that_is_left(kafka: dict[tuple[str, int], bytes]) -> None:
    kafka["k1", 0] = answer(0, (0, 5, 0, 0))
    assert keeper().queue("g", PLACES, DEADLINE_S) == {("orders", 0): (5, -1)}


def test_a_broker_that_is_no_coordinator_is_left_out(kafka: dict[tuple[str, int], bytes]) -> None:
    kafka["k1", 1] = answer(1, error=KafkaError.NOT_COORDINATOR)
    kafka["k2", 1] = answer(1, (0, 5, 3, 0))
    assert keeper().queue("g", PLACES, DEADLINE_S) == {("orders", 0): (5, 3)}


def test_what_kafka_refuses_names_the_rights_it_takes(kafka: dict[tuple[str, int], bytes]) -> None:
    kafka["k1", 1] = answer(1, error=KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaRefusedError, match="why; it takes the rights to describe"):
        keeper().queue("g", PLACES, DEADLINE_S)


def test_a_group_that_kafka_does_not_tell_of_keeps_no_other_from_being_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where security lets nodes ask for one group at a time only."""
    told = {PLACES[0]: CommittedPosition(7)}
    given: list[float] = []

    def committed(
        _: GroupPositions, group: str, __: object, deadline_s: float
    ) -> dict[Place, CommittedPosition]:
        given.append(deadline_s)
        if group == "refused":
            raise KafkaRefusedError("not allowed")
        if group == "silent":
            raise KafkaUnreachableError("no answer")
        return told

    monkeypatch.setattr(queue_positions, "can_ask", lambda _: False)
    monkeypatch.setattr(GroupPositions, "committed", committed)
    groups = dict.fromkeys(("refused", "silent", "told"), PLACES)
    assert keeper().committed_by(groups, DEADLINE_S) == {"told": told}
    assert max(given) < DEADLINE_S / len(groups)
