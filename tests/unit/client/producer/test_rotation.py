"""Which writer takes a message: those without a key go round, those of a key follow one another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from anabranch.client import Segment, TopicLayout
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.router import Router
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import legacy_segment
from anabranch.core.errors import UncoveredHashError


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
    seen = sealing()
    writers = Router(seen, PartitionWriter)
    key, other = b"key-0", next(k for k in keys() if seen.place(k)[1] != seen.place(b"key-0")[1])
    parent = writers.route(key)
    leave(writers, writers.route(other))
    refusing = writers.route(other)
    writers.close(refusing)
    assert (refusing.segment.segment_id, writers.route(key)) == (1, parent)
    assert writers.route(other) is refusing


def test_a_bucket_that_was_left_takes_nothing_again_and_its_keys_become_easy_to_find() -> None:
    seen, key = sealing(), b"key-0"
    writers = Router(seen, PartitionWriter)
    leave(writers, writers.route(key))
    writers.update(replace(seen, version=2))
    child = writers.route(key)
    assert (child.segment.segment_id, writers.known(key)) == (1, None)
    done = {part.segment_id: part for part in seen.children}
    writers.update(TopicLayout("t/n/x", 1, 2, done))
    assert writers.known(key) is child


def test_messages_without_a_key_go_to_a_child_once_no_bucket_of_its_parents_takes_them() -> None:
    writers = Router(sealing(), PartitionWriter)
    for _ in range(2):
        assert {segment_id for segment_id, _ in taken(writers, 4)} == {0}
        leave(writers, writers.route(None))
    assert set(taken(writers, 4)) == {(1, 0)}


def test_without_a_key_a_bucket_that_leaves_comes_last_but_before_a_lost_one() -> None:
    writers = table(SegmentLayout.initial(2, bucket_budget=2))
    leaving, other = writers.route(None), writers.route(None)
    writers.close(leaving)
    writers.update(writers.layout)
    assert set(taken(writers, 2)) == {(1, 0)}
    other.lost = "its topic is gone"
    assert writers.route(None) is leaving
    other.lost = ""
    writers.reopen(leaving)
    assert set(taken(writers, 2)) == {(0, 0), (1, 0)}, "it goes on after all"


@pytest.mark.parametrize("lacking", [set(), {0}, {1}, {2}, {0, 1, 2}])
def test_a_key_is_easily_found_once_its_bucket_has_a_writer_unless_segments_are_lacking(
    lacking: set[int],
) -> None:
    layout = table(SegmentLayout.initial(3, bucket_budget=6)).layout
    there = {each: part for each, part in layout.segments.items() if each not in lacking}
    writers = Router(replace(layout, segments=there), PartitionWriter)
    for key in itertools.islice(keys(), 30):
        routed = None
        with suppress(UncoveredHashError):
            routed = writers.route(key)
        assert writers.known(key) is (None if lacking else routed)


def sealing() -> TopicLayout:
    """Segment 0 gets one bucket in place of two, as segment 1, and begins to refuse."""
    layout = SegmentLayout.initial(1, bucket_budget=2)
    (child,) = layout.rebucket_children(0, 1)
    parts = {part.segment_id: Segment(part, f"k{part.segment_id}") for part in layout.active}
    children = (Segment(child, "k1"),)
    return TopicLayout("t/n/x", 1, layout.epoch, parts, children, frozenset({0}), sealing=True)


def leave(writers: Router[PartitionWriter], writer: PartitionWriter) -> None:
    writers.close(writer)
    writers.leave(writer)


def keys() -> Iterator[bytes]:
    return (b"key-%d" % number for number in itertools.count())


@pytest.mark.parametrize("key", [None, b"key"])
def test_nothing_is_sent_to_an_adopted_topic_whose_partitioner_is_not_known(
    key: bytes | None,
) -> None:
    old = Segment(legacy_segment("old", "", 3), "old")
    layout = TopicLayout("public/default/orders", 1, 0, {0: old})
    router: Router[PartitionWriter] = Router(layout, PartitionWriter)
    with pytest.raises(UncoveredHashError, match="--partitioner"):
        router.route(key)
    assert router.writers() == []
