"""The record batches of a partition, as they lie in the embedded Kafka's files."""

from __future__ import annotations

import struct

from anabranch.devkit.kafka.embedded import EmbeddedKafka

_HEAD = struct.Struct(">qi")  # the first offset, and how many bytes follow
_COUNT = struct.Struct(">i")
_COUNT_AT = 57
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_CONTROL = 0x20


def batches_of(kafka: EmbeddedKafka, topic: str, partition: int) -> list[int]:
    """How many records each has, in the order of offsets."""
    folder = kafka.log_file.parent / "log" / f"{topic}-{partition}"
    counts = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at + _COUNT_AT < len(data):
            _, size = _HEAD.unpack_from(data, at)
            if size == 0:
                break  # the rest of a file that was made large beforehand
            if not _ATTRIBUTES.unpack_from(data, at + _ATTRIBUTES_AT)[0] & _CONTROL:
                counts.append(_COUNT.unpack_from(data, at + _COUNT_AT)[0])
            at += _HEAD.size + size
    return counts
