"""Appends that no client makes, so their bytes are made here (Kafka's "Record Batch", v2).

One keeps Kafka busy for seconds, with the partition's lock in its hands: a few megabytes of gzip
that are gigabytes of zeros, all of which Kafka reads before it stores the batch. One is the
least that there is in the codec of a sealed segment. One has a producer's numbers.
"""

from __future__ import annotations

import gzip
import struct
import time
from contextlib import closing
from typing import Final

import google_crc32c

from anabranch.wire.kafka.protocol import BrokerConnection, text
from anabranch.wire.varint import varint
from support.waiting import WAIT_S

BYTES: Final = 8 * 1024 * 1024  # a segment that takes less refuses the batch
RECORDS: Final = 2
_VALUE: Final = 30 * 64 * 1024 * 1024  # of each record; its length must fit 32 bits
_ZEROS: Final = 64 * 1024 * 1024
_PRODUCE: Final = 0
_PRODUCE_VERSION: Final = 9
_GZIP: Final = 1
_SNAPPY: Final = 2


def append(
    leader: tuple[str, int], topic: str, partition: int, batch: bytes, transactional_id: str = ""
) -> int:
    """Appends a batch and returns Kafka's error code, 0 for none. Blocks."""
    body = (
        (text(transactional_id) if transactional_id else b"\0")
        + struct.pack(">hi", 1, int(WAIT_S * 1_000))
        + b"\x02"
        + text(topic)
        + b"\x02"
    )
    body += struct.pack(">i", partition) + varint(len(batch) + 1) + batch + b"\0\0\0"
    with closing(BrokerConnection(leader, {}, WAIT_S)) as connection:
        answer = connection.ask(_PRODUCE, _PRODUCE_VERSION, body)
    assert answer.count() == 1
    assert answer.text() == topic
    assert answer.count() == 1
    _, error = answer.unpack(">ih")
    return error


def slow_batch() -> bytes:
    """`RECORDS` records, which take seconds to be made and to be stored."""
    zeros = gzip.compress(bytes(_ZEROS))  # its members may stand one after the other
    records = b"".join(
        gzip.compress(_record_without_value(number))
        + zeros * (_VALUE // _ZEROS)
        # A record ends with the number of its headers.
        + gzip.compress(b"\0")
        for number in range(RECORDS)
    )
    return _batch(_GZIP, RECORDS, records)


def least_batches() -> list[bytes]:
    """One record of nothing: in snappy without the frame in which Java wraps it, and in gzip."""
    record = _record_of_nothing()
    snappy = varint(len(record)) + varint((len(record) - 1) << 2) + record
    return [_batch(_SNAPPY, 1, snappy), _batch(_GZIP, 1, gzip.compress(record, 9))]


def numbered_batch(producer_id: int, epoch: int, first: int, values: list[bytes]) -> bytes:
    """Records of these values, with the numbers from `first` on."""
    records = b""
    for number, value in enumerate(values):
        record = b"\0" + _signed(0) + _signed(number) + _signed(-1) + _signed(len(value)) + value
        records += _signed(len(record) + 1) + record + b"\0"  # without headers
    return _batch(0, len(values), records, (producer_id, epoch, first))


def _batch(
    attributes: int,
    count: int,
    records: bytes,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """`producer`: its id, epoch and the batch's first number."""
    at_ms = int(time.time() * 1_000)
    checked = struct.pack(">hiqqqhii", attributes, count - 1, at_ms, at_ms, *producer, count)
    checked += records
    rest = struct.pack(">ibI", -1, 2, google_crc32c.value(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record_of_nothing() -> bytes:
    record = b"\0" + _signed(0) + _signed(0) + _signed(-1) + _signed(-1) + b"\0"
    return _signed(len(record)) + record


def _record_without_value(number: int) -> bytes:
    """All before the value: length, attributes, time, offset, no key, the value's length."""
    before = b"\0" + _signed(0) + _signed(number) + _signed(-1) + _signed(_VALUE)
    return _signed(len(before) + _VALUE + 1) + before


def _signed(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)
