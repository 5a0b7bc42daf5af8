"""In which order a producer takes what a sealed partition refused, however Kafka reports it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch.client import Segment
from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage
from anabranch.core.topics.layout import SegmentLayout

_MANY = 10_000


def writer_of(*sent: bytes, key: str | bytes | None = b"k") -> PartitionWriter:
    """One that has appended these."""
    (info,) = SegmentLayout.initial(1, 1).active
    writer = PartitionWriter(1, Segment(info, "t0"), 0)
    for value in sent:
        writer.sent(key, value)
    return writer


def refuse(writer: PartitionWriter, *values: bytes, key: bytes | None = b"k") -> None:
    for value in values:
        writer.was_refused(PendingMessage(key, value), in_doubt=True)


def in_order(writer: PartitionWriter) -> list[bytes | None]:
    writer.put_in_order()
    return [each.value for each in writer.refused]


@pytest.mark.parametrize("reported", [(b"1", b"2", b"3"), (b"2", b"3", b"1"), (b"3", b"2", b"1")])
def test_what_is_refused_is_put_into_the_order_of_sending(reported: Sequence[bytes]) -> None:
    writer = writer_of(b"0", b"1", b"2", b"3")
    writer.acked(0)
    refuse(writer, *reported)
    assert in_order(writer) == [b"1", b"2", b"3"]


def test_the_first_one_that_was_sent_is_the_one_that_kafka_has() -> None:
    """A batch that Kafka put off after it had stored it, and the next ones, refused meanwhile."""
    writer = writer_of(b"190", b"207", b"230")
    refuse(writer, b"207", b"230", b"190")
    writer.put_in_order()
    assert [each.value for each in writer.resolved(1)] == [b"190"]
    assert [each.value for each in writer.refused] == [b"207", b"230"]


@pytest.mark.parametrize(("sent", "told"), [("key", b"key"), (None, None), (b"key", b"key")])
def test_a_key_is_known_in_the_form_of_kafka(sent: str | bytes | None, told: bytes | None) -> None:
    writer = writer_of(b"1", b"2", key=sent)
    refuse(writer, b"2", b"1", key=told)
    assert in_order(writer) == [b"1", b"2"]


def test_what_is_acknowledged_does_not_stand_for_an_equal_one_that_is_refused() -> None:
    writer = writer_of(b"same", b"1", b"same")
    writer.acked(0)
    refuse(writer, b"same", b"1")
    assert in_order(writer) == [b"1", b"same"]


def test_failures_are_forgotten_too() -> None:
    writer = writer_of()
    for number in range(_MANY):
        writer.sent(b"k", b"%d" % number)
        writer.failed()
    assert len(writer.order) < 1_000


def test_the_order_of_what_is_settled_is_forgotten() -> None:
    writer = writer_of()
    longest = 0
    for number in range(_MANY):
        writer.sent(b"k", b"%d" % number)
        if number >= 100:
            writer.acked(number)
        longest = max(longest, len(writer.order))
    assert longest < 1_000
    refuse(writer, b"9999", *(b"%d" % number for number in range(9_900, 9_999)))
    assert in_order(writer) == [b"%d" % number for number in range(9_900, 10_000)]
