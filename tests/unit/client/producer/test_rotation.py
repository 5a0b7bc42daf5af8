"""Which writer takes a message: those without a key go round, those of a key follow one another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from anabranch.client import Segment, TopicLayout
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.router import Router
from anabranch.core.entities.layout import SegmentLayout


def table(layout: SegmentLayout) -> Router[PartitionWriter]:
    parts = {part.segment_id: Segment(part, f"k{part.segment_id}") for part in layout.active}
    return Router(TopicLayout("t/n/x", 1, layout.epoch, parts), PartitionWriter)


def taken(partitions: Router[PartitionWriter], count: int) -> list[tuple[int, int]]:
    found = [partitions.route(None) for _ in range(count)]
    return [(partition.segment.segment_id, partition.bucket) for partition in found]


def test_messages_without_a_key_go_from_segment_to_segment_beginning_with_the_rings_first() -> None:
    layout = SegmentLayout.initial(2, bucket_budget=2).split_segment(0)
    assert taken(table(layout), 4) == [(2, 0), (3, 0), (1, 0), (2, 0)]


def test_they_go_round_the_buckets_of_each_segment_too() -> None:
    partitions = table(SegmentLayout.initial(2, bucket_budget=4))
    assert taken(partitions, 5) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]


def test_a_parent_s_writer_takes_a_key_before_a_child_s_that_refuses_already() -> None:
    """A child may be sealed before one hears what became of the last append to its parent."""
    layout = SegmentLayout.initial(1, bucket_budget=2)
    (child,) = layout.rebucket_children(0, 1)
    parts = {part.segment_id: Segment(part, f"k{part.segment_id}") for part in layout.active}
    children = (Segment(child, "k1"),)
    seen = TopicLayout("t/n/x", 1, layout.epoch, parts, children, frozenset({0}), sealing=True)
    writers = Router(seen, PartitionWriter)
    key, other = b"key-0", next(k for k in keys() if seen.place(k)[1] != seen.place(b"key-0")[1])
    parent, moved = writers.route(key), writers.route(other)
    writers.close(moved)
    writers.leave(moved)
    refusing = writers.route(other)
    writers.close(refusing)
    assert (refusing.segment.segment_id, writers.route(key)) == (1, parent)
    assert writers.route(other) is refusing


def keys() -> Iterator[bytes]:
    return (b"key-%d" % number for number in itertools.count())
