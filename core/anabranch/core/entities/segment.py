"""`SegmentInfo`: one segment of a scalable topic (PIP-468, "SegmentInfo")."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import IntEnum, unique
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16, bucket_of
from anabranch.core.partitioners import Partitioner, partition_of

RING16_END: Final = RING16 - 1
SEGMENTS_MAX: Final = RING16  # in one layout: a segment holds at least one hash
BUCKETS_MAX: Final = 1024  # in one segment (PIP-486, N_max)
# The most bytes of a batch in a sealed segment's Kafka topic. The end of a transaction just fits: a
# header of 61 bytes and one record of 17, which are its length, attributes, two differences, a key
# of version and type, a value of version and epoch, no headers (KIP-98).
SEALED_BYTES: Final = 61 + 17
SEALED_BYTES_BARE: Final = 1  # where compression cannot make clients' batches too large

_PARTITIONERS: Final = {each.value: each for each in Partitioner}
_DESCRIPTOR = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9]\d{0,17})", re.ASCII)


@unique
class SegmentState(IntEnum):
    """The state of a segment: ACTIVE ones take messages; the numbers are stored and sent, never
    reused.
    """

    ACTIVE = 0
    SEALED = 1


class SegmentInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One segment: `start` to `end` of the 16-bit ring, both inclusive.

    `buckets`: the number of entry buckets of equal width, which are the partitions of its Kafka
    topic. `sealed_at_epoch`, `sealed_at_ms`: 0 while it is ACTIVE. `end_offsets`: once it is
    SEALED, the first offset that each partition will never have. `topic_id`: that of its Kafka
    topic; "" if Kafka did not tell it.

    `legacy_topic`: the Kafka topic that was adopted as this segment, "" for one of our making (as
    PIP-475 has it). `partitioner`: for it, the way in which its writers find the partition of a
    key, by the name of a `Partitioner`; "" if none is known, so that nobody of ours may write.
    `bytes_max`: of a batch that it takes; 0: as many as any segment. `start_offsets`: the first
    offset of each partition that is its own, where it continues a sealed segment of the same Kafka
    topic; () for 0.
    """

    segment_id: int
    start: int
    end: int
    state: SegmentState
    parent_ids: tuple[int, ...]
    child_ids: tuple[int, ...]
    created_at_epoch: int
    sealed_at_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    buckets: int
    end_offsets: tuple[int, ...] = ()
    topic_id: str = ""
    legacy_topic: str = ""
    partitioner: str = ""
    bytes_max: int = 0
    start_offsets: tuple[int, ...] = ()

    @property
    def is_legacy(self) -> bool:
        """Returns whether others have made its Kafka topic, which is not ours to change."""
        return bool(self.legacy_topic)

    @property
    def is_active(self) -> bool:
        return self.state is SegmentState.ACTIVE

    @property
    def range(self) -> tuple[int, int]:
        """Returns the first and the last hash that it covers."""
        return self.start, self.end

    @property
    def size(self) -> int:
        """Returns how many hashes it covers."""
        return self.end - self.start + 1

    @property
    def descriptor(self) -> str:
        """Its name below its topic: `0000-7fff-1`."""
        return f"{self.start:04x}-{self.end:04x}-{self.segment_id}"

    def __contains__(self, hash16: int) -> bool:
        return self.start <= hash16 <= self.end

    def bucket(self, key: str | bytes, position: int) -> int:
        """Returns the bucket of a key, whose place on the ring is `position` (`hashing.hash32`).

        A key has the partition of an adopted topic that the topic's own writers give it; -1 if it
        is not known how they find it.
        """
        if not self.legacy_topic:
            return bucket_of(position, self.buckets)
        partitioner = _PARTITIONERS.get(self.partitioner)
        if partitioner is None:
            return -1
        data = key.encode() if isinstance(key, str) else key
        return partition_of(partitioner, data, self.buckets)

    def first_offset(self, bucket: int) -> int:
        """Returns the offset at which the bucket begins in its Kafka partition."""
        return self.start_offsets[bucket] if self.start_offsets else 0

    @property
    def begins_late(self) -> bool:
        """Tells whether messages lie before its first offset; one that is lost holds nothing."""
        return any(self.start_offsets) and (self.is_active or any(self.end_offsets))

    def continues(self, sealed: SegmentInfo) -> bool:
        """Tells whether it is the same Kafka topic from the ends of the sealed one on."""
        return self.is_legacy and not sealed.is_active and self.legacy_topic == sealed.legacy_topic

    def is_adjacent(self, other: SegmentInfo) -> bool:
        """Tells whether one ends just before the other begins."""
        return self.end + 1 == other.start or other.end + 1 == self.start


def new_segment(
    segment_id: int, start: int, end: int, buckets: int, parents: tuple[int, ...] = ()
) -> SegmentInfo:
    """An active segment whose epoch and time are filled in when it enters a layout."""
    active = SegmentState.ACTIVE
    return SegmentInfo(segment_id, start, end, active, parents, (), 0, 0, 0, 0, buckets)


def legacy_segment(
    kafka_topic: str, topic_id: str, partitions: int, partitioner: str = "", bytes_max: int = 0
) -> SegmentInfo:
    """The segment that a Kafka topic becomes: it covers the ring, and its buckets are partitions.

    Its epoch and time are filled in when it enters a layout.
    """
    return replace(
        new_segment(0, 0, RING16_END, partitions),
        topic_id=topic_id,
        legacy_topic=kafka_topic,
        partitioner=partitioner,
        bytes_max=bytes_max,
    )


def parse_descriptor(text: str) -> tuple[int, int, int]:
    """Start, end and id of `0000-7fff-1`. Raises InvalidInputError."""
    match = _DESCRIPTOR.fullmatch(text)
    if match is None or int(match[1], 16) > int(match[2], 16):
        raise InvalidInputError(
            f"segment descriptor {text!r} is not of the form hexStart-hexEnd-id, for example "
            "0000-7fff-1"
        )
    return int(match[1], 16), int(match[2], 16), int(match[3])


def stretches(parts: Iterable[SegmentInfo]) -> list[tuple[int, int]] | None:
    """The stretches of the ring, first and last hash, that the segments, in any order, cover.

    None if a hash is covered twice, or a range is empty.
    """
    found: list[tuple[int, int]] = []
    for part in sorted(parts, key=attrgetter("start")):
        if part.end < part.start or (found and part.start <= found[-1][1]):
            return None
        if found and part.start == found[-1][1] + 1:
            found[-1] = (found[-1][0], part.end)
        else:
            found.append(part.range)
    return found


def tile(parts: Iterable[SegmentInfo]) -> bool:
    """Tells whether the segments, in any order, cover the ring exactly once."""
    return stretches(parts) == [(0, RING16_END)]


def descent(
    parents: Iterable[SegmentInfo], ranges: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, ...]]:
    """For each range, first and last hash, the ids of the parents that cover some of it, ascending.

    No hash may have two parents.
    """
    ring = sorted(parents, key=attrgetter("start"))
    starts, ends = [part.start for part in ring], [part.end for part in ring]
    for start, end in ranges:
        found = ring[bisect_left(ends, start) : bisect_right(starts, end)]
        yield tuple(sorted(part.segment_id for part in found))


def parents_of(children: Iterable[SegmentInfo]) -> tuple[int, ...]:
    """The ids of all segments that these descend from, each once, as the children name them."""
    return tuple(dict.fromkeys(each for child in children for each in child.parent_ids))
