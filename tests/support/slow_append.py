"""An append that keeps Kafka busy for seconds, with the partition's lock in its hands.

A few megabytes of gzip that are gigabytes of zeros: Kafka reads through all of it before it stores
the batch. No client makes such a batch, so its bytes are made here (Kafka's "Record Batch", v2).
"""

from __future__ import annotations

import gzip
import struct
import time
from contextlib import closing
from typing import Final

from anabranch.wire.kafka.protocol import BrokerConnection, text
from anabranch.wire.varint import varint

BYTES: Final = 8 * 1024 * 1024  # a segment that takes less refuses the batch
RECORDS: Final = 2
_VALUE: Final = 30 * 64 * 1024 * 1024  # of each record; its length must fit 32 bits
_ZEROS: Final = 64 * 1024 * 1024
_PRODUCE: Final = 0
_PRODUCE_VERSION: Final = 9
_GZIP: Final = 1
_WAIT_S: Final = 120.0


def append(leader: tuple[str, int], topic: str, partition: int, batch: bytes) -> int:
    """Appends a `slow_batch` and returns Kafka's error code, 0 for none. Blocks."""
    body = b"\0" + struct.pack(">hi", 1, int(_WAIT_S * 1_000)) + b"\x02" + text(topic) + b"\x02"
    body += struct.pack(">i", partition) + varint(len(batch) + 1) + batch + b"\0\0\0"
    with closing(BrokerConnection(leader, {}, _WAIT_S)) as connection:
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
    now_ms = int(time.time() * 1_000)
    checked = struct.pack(">hiqqqhii", _GZIP, RECORDS - 1, now_ms, now_ms, -1, -1, -1, RECORDS)
    checked += records
    rest = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record_without_value(number: int) -> bytes:
    """All before the value: length, attributes, time, offset, no key, the value's length."""
    before = b"\0" + _signed(0) + _signed(number) + _signed(-1) + _signed(_VALUE)
    return _signed(len(before) + _VALUE + 1) + before


def _signed(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _crc32c(data: bytes) -> int:
    """Castagnoli's, which the standard library lacks."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
