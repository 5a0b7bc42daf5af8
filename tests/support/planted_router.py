"""A bug planted in the SDK's router, which the tests of the sender and the simulation find."""

from __future__ import annotations

import pytest

from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.router import Router
from anabranch.client._topics.layout import Segment
from anabranch.core.hashing import bucket_of, segment_hash


def begin_in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that begins while a segment is being sealed begins in its child."""
    place_at = Router._place_at

    def eager(self: Router[PartitionWriter], position: int) -> tuple[Segment, int]:
        part, bucket = place_at(self, position)
        used = {(partition.segment.segment_id, partition.bucket) for partition in self.writers()}
        child = self.layout.child_at(segment_hash(position))
        is_leaving = self.layout.is_leaving(part.segment_id)
        if is_leaving and child is not None and (part.segment_id, bucket) not in used:
            return child, bucket_of(position, child.info.buckets)
        return part, bucket

    monkeypatch.setattr(Router, "_place_at", eager)
