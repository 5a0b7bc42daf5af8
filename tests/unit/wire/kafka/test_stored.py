"""Stored batches are read to the byte, and what is wrong with one is told without its content."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from anabranch.wire.kafka.protocol import KafkaProtocolError, ResponseReader
from anabranch.wire.kafka.stored import batches, fetch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = [b"planted", b"", None, b"planted too"]


def batch(first: int, codec: int = 0, *, is_control: bool = False) -> bytearray:
    made = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, key in enumerate(KEYS):
        made.append(number, 1, key, b"secret value", [])
    data = bytearray(made.build())
    data[:8] = struct.pack(">q", first)
    if is_control:
        data[22] |= 0x20
    return data


@pytest.mark.parametrize("codec", range(5))
def test_records_are_read_with_their_codec(codec: int) -> None:
    one, two = batches(bytes(batch(7, codec) + batch(40, codec)))
    assert one.codec == two.codec == CODECS[codec]
    assert (one.next_offset, two.next_offset) == (11, 44)
    assert [each.offset for each in two.records] == [40, 41, 42, 43]
    assert [each.key for each in one.records] == KEYS
    assert {each.value_head for each in one.records} == {b"secret"}
    assert "planted" not in repr(one)
    assert "secret" not in repr(one)


def test_the_end_of_a_transaction_is_no_record() -> None:
    (found,) = batches(bytes(batch(7, is_control=True)))
    assert (found.next_offset, found.codec, found.records) == (11, "", [])


def test_a_batch_that_is_cut_off_waits_for_the_next_look() -> None:
    whole, more = bytes(batch(7)), bytes(batch(11))
    for size in range(len(more)):
        assert [each.next_offset for each in batches(whole + more[:size])] == [11]


def test_batches_from_before_kafka_0_11_show_their_codec_alone() -> None:
    old = struct.pack(">qiibb", 9, 30, 0, 1, 2) + bytes(24)
    first, second = batches(old + bytes(batch(10)))
    assert (first.next_offset, first.codec, first.records) == (10, "snappy", [])
    assert second.next_offset == 14


@pytest.mark.parametrize("codec", range(5))
def test_a_damaged_batch_is_named_and_not_quoted(codec: int) -> None:
    data = batch(7, codec)
    data[61:75] = b"\xff" * 14
    with pytest.raises(KafkaProtocolError, match="the batch at offset 7 cannot be read") as told:
        list(batches(bytes(data)))
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__
    assert "planted" not in str(told.value)


def answer(error: int, partition_error: int, data: bytes) -> bytes:
    part = struct.pack(">ihqqq", 3, partition_error, 50, 40, 0) + b"\x02" + bytes(16) + b"\0"
    part += struct.pack(">i", -1) + bytes([len(data) + 1]) + data + b"\0"
    topic = b"\x07orders" + b"\x02" + part + b"\0"
    return struct.pack(">ihi", 0, error, 0) + b"\x02" + topic + b"\0"


def fetched(told: bytes) -> dict[int, bytes]:
    asked: list[tuple[int, int, bytes]] = []

    def ask(question: int, version: int, body: bytes) -> ResponseReader:
        asked.append((question, version, body))
        return ResponseReader(told)

    found = fetch(ask, "orders", {3: 40}, 9_000, 700)
    ((question, version, body),) = asked
    assert (question, version) == (1, 12)
    part = struct.pack(">iiqiqi", 3, -1, 40, -1, -1, 700) + b"\0"
    head = struct.pack(">iiiibii", -1, 100, 1, 9_000, 0, 0, -1)
    assert body == head + b"\x02\x07orders\x02" + part + b"\0" + b"\x01\x01\0"
    return found


def test_what_a_broker_gives_is_found_by_partition() -> None:
    assert fetched(answer(0, 0, b"stored")) == {3: b"stored"}
    assert fetched(answer(0, 0, b"")) == {3: b""}
    assert fetched(answer(0, 1, b"")) == {3: b""}  # its offset is gone


@pytest.mark.parametrize(("error", "partition_error"), [(29, 0), (0, 29), (0, 6)])
def test_a_refusal_is_told(error: int, partition_error: int) -> None:
    with pytest.raises(KafkaProtocolError, match=f"error {error or partition_error}"):
        fetched(answer(error, partition_error, b""))
