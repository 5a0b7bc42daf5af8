"""The stored batches of a Kafka topic, read by Fetch: their codecs, and their records' keys.

librdkafka gives records to its user, and does not tell by which codec their batch came. A Fetch
belongs to no group and commits nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from anabranch.wire.kafka.producing import KafkaNotYetError
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    Ask,
    KafkaProtocolError,
    Partition,
    ResponseReader,
    array,
    text,
)

FETCH: Final = 1
FETCH_VERSION: Final = 12  # the last one that names topics; in Kafka 2.7
_NO_SESSION: Final = struct.pack(">ii", 0, -1)
_WAIT_MS: Final = 100
_HEAD: Final = struct.Struct(">qiib")  # first offset, bytes that follow, leader epoch, format
_FORMAT: Final = 2  # since Kafka 0.11
_SIZE_AT: Final = 12  # bytes before those that follow
_OLD_CODEC_AT: Final = 17
_MOVED: Final = (3, 5, 6, 74, 75)  # to another leader, or on the way
_GONE: Final = 1  # retention has just deleted the offset
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_HEAD_BYTES: Final = 6  # of a value


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record, without most of its value. `value_head` has some first bytes of it."""

    offset: int
    key: bytes | None = field(repr=False)
    value_head: bytes = field(repr=False)
    headers: Sequence[tuple[str, bytes | None]] = ()


class StoredBatch(NamedTuple):
    """A batch, and the offset behind it. The end of a transaction has no records, and no codec.
    One in the format from before Kafka 0.11 shows none of its records.
    """

    next_offset: int
    codec: str
    records: list[StoredRecord]


def fetch(
    ask: Ask,
    topic: str,
    offsets: Mapping[int, int],
    bytes_max: int,
    partition_bytes: int,
) -> dict[int, bytes]:
    """Returns the stored bytes of each partition from its offset on, at least a batch of one; none
    where retention has just deleted the offset.

    Raises OSError, or KafkaProtocolError for an error of a partition.
    """
    body = fetch_request({topic: offsets}, bytes_max, partition_bytes)
    found = read_fetched(ask(FETCH, FETCH_VERSION, body))
    return {number: data or b"" for (_, number), data in found.items()}


def fetch_request(
    topics: Mapping[str, Mapping[int, int]], bytes_max: int, partition_bytes: int
) -> bytes:
    """Returns the body that asks for records of partitions from their offsets on, by topic."""
    asked = [
        text(topic)
        + array(
            struct.pack(">iiqiqi", number, -1, offset, -1, -1, partition_bytes) + NO_TAGS
            for number, offset in offsets.items()
        )
        + NO_TAGS
        for topic, offsets in topics.items()
    ]
    body = struct.pack(">iiiib", -1, _WAIT_MS, 1, bytes_max, 0) + _NO_SESSION
    return body + array(asked) + array(()) + text("") + NO_TAGS


def read_fetched(reader: ResponseReader) -> dict[Partition, bytes | None]:
    """Decodes the stored bytes of each partition, None where retention has deleted the offset.

    Raises KafkaNotYetError where another broker leads, and KafkaProtocolError.
    """
    _, error, _ = reader.unpack(">ihi")  # throttle time, error, session
    if error:
        raise KafkaProtocolError(f"Kafka does not give records: error {error}")
    found: dict[Partition, bytes | None] = {}
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            number, error, *_ = reader.unpack(">ihqqq")  # its ends and its begin
            if error not in (0, _GONE):
                kind = KafkaNotYetError if error in _MOVED else KafkaProtocolError
                raise kind(
                    f"Kafka does not give records of {topic}[{number}]: error {error}; it takes "
                    "the right to read the topic"
                )
            for _ in range(reader.count()):
                reader.skip(16)  # an aborted transaction
                reader.tags()
            reader.skip(4)  # a copy to read from
            data = reader.take(reader.count())
            found[topic, number] = None if error else data
            reader.tags()
        reader.tags()
    return found


def batches(data: bytes) -> Iterator[StoredBatch]:
    """Decodes the whole batches of what was fetched. Raises KafkaProtocolError."""
    at = 0
    while at + _HEAD.size < len(data):
        first, size, _, form = _HEAD.unpack_from(data, at)
        end = at + _SIZE_AT + size
        if size <= _HEAD.size or end > len(data):
            return  # the rest of it was cut off
        if form < _FORMAT:
            yield StoredBatch(first + 1, _codec(data[at + _OLD_CODEC_AT]), [])
        else:
            yield _batch(data[at:end])
        at = end


def _batch(data: bytes) -> StoredBatch:
    try:
        batch: Any = DefaultRecordBatch(data)
        if batch.is_control_batch:
            return StoredBatch(batch.next_offset, "", [])
        records = [
            StoredRecord(
                each.offset, each.key, (each.value or b"")[:_HEAD_BYTES], tuple(each.headers)
            )
            for each in batch
        ]
        return StoredBatch(batch.next_offset, _codec(batch.compression_type), records)
    except Exception as error:  # noqa: BLE001 - each codec has errors of its own
        offset = int.from_bytes(data[:8], "big")
        raise KafkaProtocolError(
            f"the batch at offset {offset} cannot be read: {type(error).__name__}"
        ) from None  # it might quote the batch


def _codec(attributes: int) -> str:
    number = attributes & 7
    return _CODECS[number] if number < len(_CODECS) else f"codec {number}"
