"""What is asked of Kafka over a connection of our own, to the byte, and what its answers mean."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.wire.kafka import protocol
from anabranch.wire.kafka.producer_state import ProducerState, ask
from anabranch.wire.kafka.protocol import BrokerConnection, KafkaProtocolError, ResponseReader, text
from anabranch.wire.varint import varint
from support.leader import Leader
from support.waiting import WAIT_S

NO_TAGS = b"\0"
TAGS = b"\x01\x05\x02ab"  # one, number 5, of two bytes: of a later Kafka


HEADER = struct.pack(">i", 1) + TAGS


def framed(body: bytes) -> bytes:
    answer = HEADER + body
    return struct.pack(">i", len(answer)) + answer


def told(
    *partitions: tuple[int, int, str], states: tuple[ProducerState, ...] = (), tags: bytes = TAGS
) -> bytes:
    """An answer on partitions: number, error and message; each with the same producers."""
    producers = varint(len(states) + 1)
    for state in states:
        producers += struct.pack(">qiiqiq", *state, -1, 5, 2**33) + tags
    each = [
        struct.pack(">ih", number, error) + (text(message) if message else b"\0") + producers + tags
        for number, error, message in partitions
    ]
    topic = text("orders") + varint(len(each) + 1) + b"".join(each) + tags
    return framed(struct.pack(">i", 0) + varint(2) + topic + tags)


def ended(partition: int = 4, error: int = 0, end: int = 9, count: int = 1) -> bytes:
    """An answer on where a partition ends."""
    each = struct.pack(">ihqqi", partition, error, -1, end, 3) + TAGS
    topic = text("orders") + varint(count + 1) + each * count + TAGS
    return framed(struct.pack(">i", 0) + varint(2) + topic + TAGS)


def question_of_end(partition: int, asker: int = -1) -> bytes:
    header = struct.pack(">hhih", 2, 6, 1, 9) + b"anabranch" + NO_TAGS
    asked = struct.pack(">iiq", partition, -1, -1) + NO_TAGS
    return header + struct.pack(">ib", asker, 0) + b"\x02\x07orders\x02" + asked + NO_TAGS * 2


def question(*partitions: int) -> bytes:
    header = struct.pack(">hhih", 61, 0, 1, 9) + b"anabranch" + NO_TAGS
    numbers = varint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions)
    return header + b"\x02\x07orders" + numbers + NO_TAGS + NO_TAGS


def asked_once(answer: bytes, *then: bytes) -> list[ProducerState]:
    with Leader(ended(), answer, *then) as leader:
        return ask(leader.address, ("orders", 4), 9, {}, WAIT_S)


def test_a_leader_is_asked_for_the_producers_of_one_partition() -> None:
    states = (
        ProducerState(2**40, 3, 17),
        ProducerState(8, 0, 2**31 - 1),
        ProducerState(-1, -1, -1),
    )
    with Leader(ended(), told((4, 0, ""), states=states), ended(), ended()) as leader:
        assert ask(leader.address, ("orders", 4), 9, {}, WAIT_S) == list(states)
    assert leader.asked == [
        question_of_end(4),
        question(4),
        question_of_end(4, -2),  # of its own log
        question_of_end(4),
    ]


@pytest.mark.parametrize("error", [5, 6, 7, 78])
def test_who_does_not_lead_is_not_asked_for_producers_but_the_leader_is(error: int) -> None:
    with Leader(ended(error=error)) as follower, pytest.raises(OSError, match=r"orders\[4\] moves"):
        ask(follower.address, ("orders", 4), 9, {}, WAIT_S)
    assert follower.asked == [question_of_end(4)]


def test_a_leader_that_is_not_at_the_sealed_end_yet_is_asked_again() -> None:
    with Leader(ended(end=8)) as leader, pytest.raises(OSError, match="stands at 8"):
        ask(leader.address, ("orders", 4), 9, {}, WAIT_S)
    assert leader.asked == [question_of_end(4)]


def test_the_end_of_a_transaction_behind_the_sealed_end_keeps_nothing_from_being_told() -> None:
    with Leader(ended(end=10), told((4, 0, "")), ended(end=11), ended(end=11)) as leader:
        assert ask(leader.address, ("orders", 4), 9, {}, WAIT_S) == []


def test_a_former_leader_that_has_what_was_never_committed_is_not_believed() -> None:
    """It was frozen while another one was elected, and hears of that a moment later."""
    counted = told((4, 0, ""), states=(ProducerState(1, 0, 5),))
    with (
        Leader(ended(), counted, ended(end=10), ended(end=9)) as frozen,
        pytest.raises(OSError, match="reaches to 10, and is committed up to 9"),
    ):
        ask(frozen.address, ("orders", 4), 9, {}, WAIT_S)


def test_a_leader_that_ceases_to_lead_while_it_tells_is_not_believed() -> None:
    with (
        Leader(ended(), told((4, 0, "")), ended(), ended(error=6)) as leader,
        pytest.raises(OSError, match=r"orders\[4\] moves"),
    ):
        ask(leader.address, ("orders", 4), 9, {}, WAIT_S)


@pytest.mark.parametrize(
    "answer", [ended(error=29), ended(error=3), ended(partition=5), ended(count=2), ended(count=0)]
)
def test_an_end_that_kafka_does_not_tell_leaves_the_outcome_unknown(answer: bytes) -> None:
    with Leader(answer) as leader, pytest.raises(KafkaProtocolError, match="does not tell the end"):
        ask(leader.address, ("orders", 4), 9, {}, WAIT_S)


@pytest.mark.parametrize("tags", [NO_TAGS, TAGS])
def test_a_partition_without_producers_and_what_a_later_kafka_adds_are_read(tags: bytes) -> None:
    assert asked_once(told((4, 0, ""), tags=tags), ended(), ended()) == []


@pytest.mark.parametrize("error", [5, 6, 7])
def test_a_partition_that_moves_is_asked_for_again_elsewhere(error: int) -> None:
    with pytest.raises(OSError, match=r"orders\[4\] moves"):
        asked_once(told((4, error, "")))


@pytest.mark.parametrize("error", [3, 29, -1])
def test_what_kafka_refuses_to_tell_leaves_the_outcome_unknown(error: int) -> None:
    with pytest.raises(
        KafkaProtocolError, match=rf"orders\[4\]: error {error} {'not yours ' * 20}"
    ):
        asked_once(told((4, error, "not yours " * 20)))


@pytest.mark.parametrize("size", [0, -1, 64 * 1024 * 1024 + 1, 0x48545450])
def test_who_does_not_speak_kafkas_protocol_leaves_the_outcome_unknown(size: int) -> None:
    with pytest.raises(KafkaProtocolError, match=r"127\.0\.0\.1:\d+ does not speak"):
        asked_once(struct.pack(">i", size))


def test_an_answer_that_is_cut_short_is_not_believed() -> None:
    whole = told((4, 0, ""), states=(ProducerState(1, 0, 5),), tags=NO_TAGS)
    body = whole[4 + len(HEADER) :]
    for length in range(len(body) - 1):  # behind the last one nothing is read
        with pytest.raises(KafkaProtocolError, match="cut short"):
            asked_once(framed(body[:length]))
    with pytest.raises(ConnectionResetError, match="closed"):
        asked_once(whole[:-1])


@pytest.mark.parametrize("numbers", [(), (5,), (4, 5), (4, 4)])
def test_an_answer_on_other_partitions_than_asked_for_is_none(numbers: tuple[int, ...]) -> None:
    with pytest.raises(KafkaProtocolError, match=r"orders\[4\]"):
        asked_once(told(*((number, 0, "") for number in numbers)))


def test_a_broker_that_is_out_of_reach_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = door.getsockname()
    with pytest.raises(OSError, match="refused"):
        ask(address, ("orders", 4), 9, {}, WAIT_S)


# --- the protocol's types -------------------------------------------------------------------


def test_numbers_and_strings_are_read_as_they_are_written() -> None:
    for number in (0, 1, 127, 128, 16_383, 16_384, 2**31 - 1):
        assert ResponseReader(varint(number)).varint() == number
    reader = ResponseReader(text("ä" * 100) + text("") + b"\0" + text("end"))
    assert [reader.text() for _ in range(4)] == ["ä" * 100, "", "", "end"]
    assert [ResponseReader(varint(number)).count() for number in (0, 1, 4)] == [0, 0, 3]


def test_bytes_that_are_no_text_are_told_all_the_same() -> None:
    assert ResponseReader(b"\x02\xff").text() == "�"


# --- where TLS guards Kafka -----------------------------------------------------------------


class Wrapped:
    """A context that notes for which host it is asked to guard a connection."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    def wrap_socket(self, plain: socket.socket, *, server_hostname: str) -> socket.socket:
        self.hosts.append(server_hostname)
        return plain


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Wrapped:
    wrapped = Wrapped()
    monkeypatch.setattr(protocol, "ssl_context", lambda _: wrapped)
    return wrapped


@pytest.mark.parametrize(
    ("kafka", "guarded"),
    [
        ({}, False),
        ({"security.protocol": "PLAINTEXT"}, False),
        ({"security.protocol": "SSL"}, True),
    ],
)
def test_a_connection_is_guarded_for_its_host_where_kafka_asks_for_it(
    context: Wrapped, kafka: dict[str, Any], guarded: bool
) -> None:
    with Leader() as leader, closing(BrokerConnection(leader.address, kafka, WAIT_S)):
        pass
    assert context.hosts == (["127.0.0.1"] if guarded else [])


SASL = {"security.protocol": "SASL_SSL", "sasl.username": "user", "sasl.password": "pencil"}


def shaken(error: int = 0) -> bytes:
    return struct.pack(">iihi", 10, 1, error, 0)


def judged(said: bytes = b"", error: int = 0, why: str = "") -> bytes:
    lifetime = struct.pack(">q", 0) + TAGS
    return framed(struct.pack(">h", error) + text(why) + varint(len(said) + 1) + said + lifetime)


def test_where_sasl_guards_kafka_a_connection_says_who_it_is(context: Wrapped) -> None:
    with Leader(shaken(), judged()) as leader:
        BrokerConnection(leader.address, SASL | {"sasl.mechanism": "PLAIN"}, WAIT_S).close()
    assert context.hosts == ["127.0.0.1"]
    assert leader.asked == [
        struct.pack(">hhih", 17, 1, 1, 9) + b"anabranch\0\x05PLAIN",
        struct.pack(">hhih", 36, 2, 1, 9) + b"anabranch\0\x0d\0user\0pencil" + NO_TAGS,
    ]
    scram = SASL | {"sasl.mechanism": "SCRAM-SHA-256"}
    for answers, why in (
        ([shaken(33)], "does not take SCRAM-SHA-256"),
        ([shaken(), judged(error=58, why="wrong password")], "wrong password"),
        ([shaken(), judged(b"nonsense")], "cannot be read"),
    ):
        told = rf"127\.0\.0\.1:\d+ does not let this client in .*{why}"
        with Leader(*answers) as leader, pytest.raises(KafkaProtocolError, match=told):
            BrokerConnection(leader.address, scram, WAIT_S)


def test_a_connection_that_cannot_be_guarded_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    reached: list[tuple[object, ...]] = []

    def create_connection(*given: object) -> socket.socket:
        reached.append(given)
        return plain

    plain = cast(socket.socket, SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(socket, "create_connection", create_connection)
    kafka = {"security.protocol": "ssl", "ssl.ca.location": "/no/file"}
    with pytest.raises(FileNotFoundError):
        BrokerConnection(("127.0.0.1", 1), kafka, WAIT_S)
    assert (closed, reached) == ([True], [(("127.0.0.1", 1), WAIT_S)])


def test_a_certificate_of_our_own_is_shown_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda _, *given: shown.append(given))
    location = {"ssl.certificate.location": "own.pem"}
    protocol.ssl_context(location)
    protocol.ssl_context(location | {"ssl.key.location": "own.key", "ssl.key.password": "secret"})
    assert shown == [("own.pem", None, ""), ("own.pem", "own.key", "secret")]
