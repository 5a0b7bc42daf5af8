"""What is asked of transactions, to the byte, and what Kafka's answers mean."""

from __future__ import annotations

import struct
from typing import cast

import pytest

from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.protocol import (
    BrokerConnection,
    KafkaProtocolError,
    ResponseReader,
    array,
    text,
)
from anabranch.wire.kafka.transactions import KnownTransaction, coordinated, write_abort

NO_TAGS = b"\0"
TAGS = b"\x01\x05\x02ab"  # one, number 5, of two bytes: of a later Kafka
PLACE = ("orders", 4)


class Broker:
    """Notes what it is asked, and gives these answers in turn."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[tuple[int, int, bytes]] = []
        self._answers = list(answers)

    def ask(self, question: int, version: int, body: bytes) -> ResponseReader:
        self.asked.append((question, version, body))
        return ResponseReader(self._answers.pop(0))


def as_connection(broker: Broker) -> BrokerConnection:
    return cast(BrokerConnection, broker)


def listed(*names: str, error: int = 0) -> bytes:
    each = [text(name) + struct.pack(">q", 7) + text("Ongoing") + TAGS for name in names]
    return struct.pack(">ih", 0, error) + array([text("Odd")]) + array(each) + TAGS


def described(transaction: KnownTransaction, error: int = 0) -> bytes:
    _, state, producer, epoch, started, timeout, partitions = transaction
    topics = [text(t) + array([struct.pack(">i", n)]) + TAGS for t, n in sorted(partitions)]
    told = struct.pack(">h", error) + text(transaction.transactional_id) + text(state)
    told += struct.pack(">iqqh", timeout, started, producer, epoch) + array(topics) + TAGS
    return struct.pack(">i", 0) + array([told]) + TAGS


def marked(*errors: int, topics: int = 1) -> bytes:
    parts = [struct.pack(">ih", 4, error) + TAGS for error in errors]
    one = struct.pack(">q", 7) + array([text("orders") + array(parts) + TAGS] * topics) + TAGS
    return array([one]) + TAGS


def test_a_broker_tells_of_producers_transactions_that_it_coordinates() -> None:
    known = KnownTransaction(
        "etl", "Ongoing", 7, 3, 1_700_000_000_000, 60_000, frozenset({PLACE, ("bills", 0)})
    )
    broker = Broker(listed("etl"), described(known))
    assert coordinated(as_connection(broker), [7, 2**40]) == [known]
    asked = b"\x01\x03" + struct.pack(">qq", 7, 2**40) + NO_TAGS
    assert broker.asked == [(66, 0, asked), (65, 0, b"\x02\x04etl" + NO_TAGS)]
    assert coordinated(as_connection(Broker(listed())), [7]) == []
    for answers in ([listed("etl", error=15)], [listed("etl"), described(known, 53)]):
        with pytest.raises(KafkaProtocolError, match=r"Kafka does not .*: error (15|53)"):
            coordinated(as_connection(Broker(*answers)), [7])


@pytest.mark.parametrize(("seen", "written"), [(-1, 0), (5, 5)])
def test_the_end_is_written_under_the_epoch_of_whom_the_partition_has_seen(
    seen: int, written: int
) -> None:
    broker = Broker(marked(0))
    producer = ProducerState(7, 3, 17, 1_700_000_000_000, seen, 9)
    assert write_abort(as_connection(broker), PLACE, producer) == 0
    places = b"\x02\x07orders\x02" + struct.pack(">i", 4) + NO_TAGS
    marker = struct.pack(">qhb", 7, 3, 0) + places + struct.pack(">i", written) + NO_TAGS
    assert broker.asked == [(27, 1, b"\x02" + marker + NO_TAGS)]


def test_a_refused_end_is_told_and_an_answer_on_something_else_is_none() -> None:
    producer = ProducerState(7, 3, 17)
    assert write_abort(as_connection(Broker(marked(31))), PLACE, producer) == 31
    for answer in (marked(), marked(0, 0), marked(0, topics=2)):
        with pytest.raises(KafkaProtocolError, match=r"orders\[4\] took the end"):
            write_abort(as_connection(Broker(answer)), PLACE, producer)
