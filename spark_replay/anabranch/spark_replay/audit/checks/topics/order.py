"""Order: a key's messages in a child came after those in its parent, by the stamps of Kafka's
brokers.

The provable cases. If a segment's topic has `message.timestamp.type=LogAppendTime`, the broker that
stored a record has stamped it. The first record of a child's bucket has a key, and that key had one
bucket in one parent. If that bucket's last record is later, both took the key's messages at once.
Then a message may come after one that was sent only after its acknowledgement.

The other cases. Nodes make segments with CreateTime, since users give messages times of their own.
Such stamps are the senders', and tell nothing of Kafka's storing of a record. Kafka keeps no other
time of it. Two brokers' clocks differ, so a difference below the tolerance proves nothing either.
Nor do records without keys, or records that retention has removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.hashing import hash32, segment_hash
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft
from anabranch.spark_replay.audit.tally import CheckTally

Bucket = tuple[str, int, int]  # a topic of the cluster, a segment's id, a bucket


class Edge(msgspec.Struct, frozen=True):
    """A bucket's first or last record. The flag `by_broker` tells that its broker stamped it."""

    key: bytes | None
    time_ms: int
    by_broker: bool


class Edges(msgspec.Struct, frozen=True):
    """Kafka's last records of sealed segments' buckets, and the first ones of their children."""

    firsts: Mapping[Bucket, Edge] = {}
    lasts: Mapping[Bucket, Edge] = {}


def check_order(left: TopicsLeft, edges: Edges, tolerance_ms: int) -> tuple[CheckTally, int]:
    """Compares the pairs that can prove anything.
    Returns the tally, and the number of other pairs.
    """
    tally = CheckTally()
    unjudged = 0
    for parent in left.sealed:
        for child in parent.children:
            for bucket in range(child.buckets):
                first = edges.firsts.get((parent.topic, child.segment_id, bucket))
                last = _before(parent, first, edges)
                if first is None or last is None:
                    continue
                if not (first.by_broker and last.by_broker):
                    unjudged += 1
                    continue
                tally.examined += 1
                if first.time_ms + tolerance_ms < last.time_ms:
                    tally.violate(parent.offset, _told(parent, child, bucket, first, last))
    return tally, unjudged


def _before(parent: SealedSegment, first: Edge | None, edges: Edges) -> Edge | None:
    """Returns the last record of the parent's bucket that had the key of a child's first record."""
    if first is None or first.key is None:
        return None
    position = hash32(first.key)
    if segment_hash(position) not in parent.segment:
        return None
    bucket = parent.segment.bucket(first.key, position)
    return edges.lasts.get((parent.topic, parent.segment.segment_id, bucket))


def _told(parent: SealedSegment, child: SegmentInfo, bucket: int, first: Edge, last: Edge) -> str:
    return (
        f"{parent.topic}: segment {child.descriptor} partition {bucket} took its first message "
        f"{last.time_ms - first.time_ms} ms before its parent {parent.segment.descriptor} took the "
        "last one of the same bucket: both were writable at once"
    )
