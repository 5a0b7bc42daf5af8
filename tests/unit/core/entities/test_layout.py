"""Layouts: queries, operations, the JSON of PIP-468, and the error of every bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.entities.layout import SegmentLayout, entered, initial_segments
from anabranch.core.entities.segment import BUCKETS_MAX, new_segment, parse_descriptor, tile
from anabranch.core.errors import InvalidInputError, UncoveredHashError, UnknownSegmentError
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic


def ranges(layout: SegmentLayout) -> list[tuple[int, int, int]]:
    """Id, start and end of the active segments, in ring order."""
    return [(part.segment_id, part.start, part.end) for part in layout.active]


def twice_split() -> SegmentLayout:
    """Segment 0 split into 1 and 2, then 1 into 3 and 4."""
    return SegmentLayout.initial(1).split_segment(0).split_segment(1)


# --- initial layouts ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 7, 65_536])
def test_an_initial_layout_of_any_size_tiles_the_ring_evenly(count: int) -> None:
    layout = SegmentLayout.initial(count)
    parts = list(layout.segments.values())
    assert (layout.epoch, layout.next_segment_id, len(parts)) == (0, count, count)
    assert [part.segment_id for part in parts] == list(range(count))
    assert tile(parts)
    sizes = {part.size for part in parts}
    assert max(sizes) - min(sizes) <= 1
    assert layout.active == tuple(parts)


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_zero_or_too_many_initial_segments_are_refused(count: int) -> None:
    with pytest.raises(InvalidInputError, match=rf"numInitialSegments must be >= 1.*got {count}"):
        initial_segments(count)


@pytest.mark.parametrize(
    ("count", "budget", "buckets"), [(1, 4, 4), (2, 4, 2), (3, 4, 1), (8, 4, 1), (1, 5000, 1024)]
)
def test_the_budget_of_buckets_is_divided_among_the_segments(
    count: int, budget: int, buckets: int
) -> None:
    assert {part.buckets for part in initial_segments(count, budget)} == {buckets}


def test_no_segment_begins_with_more_buckets_than_there_may_be() -> None:
    assert [part.buckets for part in SegmentLayout.initial(2, 40, 8).active] == [8, 8]


# --- finding --------------------------------------------------------------------------------


@pytest.mark.parametrize("hash16", [-1, 65_536, 1 << 31])
def test_a_hash_outside_the_ring_is_refused(hash16: int) -> None:
    with pytest.raises(InvalidInputError, match=f"No segment covers hash {hash16}"):
        SegmentLayout.initial(2).find_active_segment(hash16)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_hash_that_no_segment_covers_is_named_and_none_is_guessed(gone: int) -> None:
    whole = SegmentLayout.initial(3)
    left = [part for part in whole.active if part.segment_id != gone]
    layout, hole = SegmentLayout(0, 3, left), whole.segments[gone]
    for hash16 in (hole.start, hole.end):
        with pytest.raises(UncoveredHashError, match=f"covers hash {hash16:04x}: the active ones"):
            layout.find_active_segment(hash16)
    for part in left:
        assert layout.find_active_segment(part.start) is layout.find_active_segment(part.end)
    with pytest.raises(UncoveredHashError, match="are none"):
        SegmentLayout(0, 0, ()).find_active_segment(0)


def test_an_unknown_segment_is_named() -> None:
    layout = SegmentLayout.initial(2)
    calls: list[Callable[[], object]] = [
        lambda: layout.segment(9),
        lambda: layout.split_segment(9),
        lambda: layout.merge_segments(0, 9),
        lambda: layout.merge_segments(9, 0),
        lambda: layout.rebucket_segment(9, 4),
        lambda: layout.prune_segment(9),
    ]
    for call in calls:
        with pytest.raises(UnknownSegmentError, match="Segment not found: 9"):
            call()


def test_the_halves_of_a_keys_hash_choose_segment_and_bucket() -> None:
    assert hash32("key") == hash32(b"key") == 0xE29C6A44
    assert segment_hash(0xE29C6A44) == 0xE29C
    assert bucket_of(0xE29C6A44, 4) == 0x6A44 * 4 >> 16
    assert bucket_of(0xE29C6A44, 1) == 0


# --- split ----------------------------------------------------------------------------------


def test_a_range_can_be_split_down_to_single_hashes_and_no_further() -> None:
    layout = SegmentLayout.initial(1)
    for _ in range(16):
        layout = layout.split_segment(layout.find_active_segment(0).segment_id)
    part = layout.find_active_segment(0)
    assert (part.start, part.end) == (0, 0)
    with pytest.raises(InvalidInputError, match="Cannot split range of size 1: segment 31 holds"):
        layout.split_segment(part.segment_id)


def test_a_sealed_segment_is_not_split() -> None:
    with pytest.raises(InvalidInputError, match="Cannot split non-active segment: 0"):
        twice_split().split_segment(0)


# --- merge ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_merge_joins_neighbours_and_names_them_in_the_order_given(order: tuple[int, int]) -> None:
    after = SegmentLayout.initial(1).split_segment(0).merge_segments(*order, now_ms=5)
    assert (ranges(after), after.segments[3].parent_ids) == ([(3, 0, 0xFFFF)], order)
    assert after.segments[3].buckets == 4
    for parent in (1, 2):
        assert after.segments[parent].child_ids == (3,)
        assert after.segments[parent].sealed_at_epoch == after.epoch == 2


@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0), (1, 1), (3, 0), (0, 3)])
def test_what_does_not_touch_is_not_merged(first: int, second: int) -> None:
    """Not across the ends of the ring either: the ranges are those of a line."""
    with pytest.raises(InvalidInputError, match="Segments are not adjacent"):
        SegmentLayout.initial(4).merge_segments(first, second)


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (0, 0)])
def test_a_sealed_segment_is_not_merged(first: int, second: int) -> None:
    with pytest.raises(InvalidInputError, match=r"Both segments must be active: .*is SEALED"):
        twice_split().merge_segments(first, second)


# --- rebucket and prune ---------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [0, -1, BUCKETS_MAX + 1])
def test_a_number_of_buckets_out_of_range_is_refused(buckets: int) -> None:
    with pytest.raises(InvalidInputError, match=rf"bucketCount must be in \[1, 1024\]: {buckets}"):
        SegmentLayout.initial(1).rebucket_segment(0, buckets)


def test_a_rollover_to_the_same_buckets_or_of_a_sealed_segment_is_refused() -> None:
    layout = twice_split()
    with pytest.raises(InvalidInputError, match="already has the requested entry-bucket splits"):
        layout.rebucket_segment(2, 2)
    with pytest.raises(InvalidInputError, match="Cannot rebucket non-active segment: 1"):
        layout.rebucket_segment(1, 8)


def test_an_active_segment_is_not_pruned() -> None:
    with pytest.raises(InvalidInputError, match="Cannot prune active segment: 2"):
        twice_split().prune_segment(2)


# --- what an operation leaves as it is -----------------------------------------------------------


def test_properties_survive_every_operation() -> None:
    layout = SegmentLayout(0, 2, initial_segments(2), {"owner": "sales"})
    layout = layout.split_segment(0).merge_segments(2, 3).rebucket_segment(1, 8)
    assert layout.properties == {"owner": "sales"}
    assert layout.prune_segment(0).properties == {"owner": "sales"}


def test_a_segment_enters_as_one_that_was_never_sealed_whatever_is_said_of_it() -> None:
    found = entered(replace(new_segment(1, 0, 9, 1), sealed_at_epoch=7, sealed_at_ms=9), 3, 5)
    assert (found.created_at_epoch, found.created_at_ms) == (3, 5)
    assert (found.sealed_at_epoch, found.sealed_at_ms) == (0, 0)


def test_a_segment_may_have_as_many_buckets_as_the_most_allowed() -> None:
    layout = SegmentLayout.initial(1)
    assert [part.buckets for part in layout.rebucket_children(0, BUCKETS_MAX)] == [BUCKETS_MAX]
    assert sum(part.buckets for part in layout.active) == 4, "unless another budget is given"


def test_a_pruned_parent_is_no_merge_of_anothers_lineage() -> None:
    layout = SegmentLayout.initial(3).merge_segments(0, 1).split_segment(2)
    layout = layout.prune_segment(2)
    assert [layout.merge_depth(each) for each in (3, 4, 5)] == [1, 0, 0]


# --- layouts and segments as text: the JSON of PIP-468, descriptors, and Kafka's names ------------


# "Metadata Store Schema" of PIP-468, as it is printed there.
PIP_468 = """{
  "epoch": 3,
  "nextSegmentId": 5,
  "segments": {
    "0": { "segmentId": 0, "hashRange": {"start": 0, "end": 65535}, "state": "SEALED",
           "parentIds": [], "childIds": [1, 2], "createdAtEpoch": 0, "sealedAtEpoch": 1 },
    "1": { "segmentId": 1, "hashRange": {"start": 0, "end": 32767}, "state": "SEALED",
           "parentIds": [0], "childIds": [3, 4], "createdAtEpoch": 1, "sealedAtEpoch": 3 },
    "2": { "segmentId": 2, "hashRange": {"start": 32768, "end": 65535}, "state": "ACTIVE",
           "parentIds": [0], "childIds": [], "createdAtEpoch": 1, "sealedAtEpoch": 0 },
    "3": { "segmentId": 3, "hashRange": {"start": 0, "end": 16383}, "state": "ACTIVE",
           "parentIds": [1], "childIds": [], "createdAtEpoch": 3, "sealedAtEpoch": 0 },
    "4": { "segmentId": 4, "hashRange": {"start": 16384, "end": 32767}, "state": "ACTIVE",
           "parentIds": [1], "childIds": [], "createdAtEpoch": 3, "sealedAtEpoch": 0 }
  },
  "properties": {}
}"""
# --- JSON -----------------------------------------------------------------------------------


def test_the_operations_of_the_example_make_the_example() -> None:
    made = SegmentLayout.initial(1, bucket_budget=1).split_segment(0)
    made = made.replaced((1,), made.split_children(1), {}, 0, epoch=3)
    assert made == SegmentLayout.from_metadata(json.loads(PIP_468))


def test_layouts_that_differ_anywhere_are_not_equal() -> None:
    layout = twice_split()
    parts = layout.segments.values()
    assert layout == SegmentLayout(layout.epoch, layout.next_segment_id, parts, layout.properties)
    for other in (
        SegmentLayout(9, layout.next_segment_id, parts, layout.properties),
        SegmentLayout(layout.epoch, 9, parts, layout.properties),
        SegmentLayout(layout.epoch, layout.next_segment_id, parts, {"a": "b"}),
    ):
        assert layout != other
    assert layout != layout.split_segment(2)
    assert layout != "a layout"


def broken(change: Callable[[Any], object]) -> Any:
    metadata = json.loads(PIP_468)
    change(metadata)
    return metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        None,
        broken(lambda m: m.update(epoch="three")),
        broken(lambda m: m.update(segments=[])),
        broken(lambda m: m["segments"]["0"].update(state="OPEN")),
    ],
)
def test_metadata_of_another_form_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidInputError, match="not the metadata of a scalable topic"):
        SegmentLayout.from_metadata(metadata)


# --- names ----------------------------------------------------------------------------------


def test_a_descriptor_names_range_and_id() -> None:
    part = new_segment(12, 0x4000, 0x7FFF, 1)
    assert part.descriptor == "4000-7fff-12"
    assert parse_descriptor(part.descriptor) == (0x4000, 0x7FFF, 12)
    assert parse_descriptor("7fff-8000-3") == (0x7FFF, 0x8000, 3)
    assert parse_descriptor("0005-0005-3") == (5, 5, 3)
    with pytest.raises(InvalidInputError):
        parse_descriptor("8000-7fff-3")


@pytest.mark.parametrize(
    "text",
    [
        "0000-7fff",
        "0000-7FFF-1",
        "7fff-0000-1",
        "0000-10000-1",
        "0000-7fff-01",
        "0000-7fff-1\n",
        "0000-7fff-" + "9" * 19,
    ],
)
def test_a_descriptor_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not of the form hexStart-hexEnd-id"):
        parse_descriptor(text)


def test_kafkas_names_are_legal_short_enough_and_differ_by_incarnation() -> None:
    part = new_segment(1, 0, 0x7FFF, 2)
    long = f"public/default/{'=' * 255}"
    prefix = "p" * 40  # the longest that a node takes for its topics
    first, second = (kafka_topic(prefix, long, number, part) for number in (41, 10**13))
    assert first != second
    for name in (first, second, kafka_group(prefix, long, "s" * 255, 10**13)):
        assert len(name) <= 249
        assert "=" not in name
        assert "/" not in name
    assert first.endswith(".41")
    assert second.endswith(".10000000000000")


def test_kafkas_names_say_what_they_are_of_and_what_kafka_does_not_take_is_replaced() -> None:
    topic = kafka_topic("anabranch.", "public/default/a=b", 42, new_segment(1, 0, 0x7FFF, 2))
    assert topic == "anabranch.segment.public.default..42144f3939c3-a_b.0000-7fff-1.42"
    group = kafka_group("anabranch.", "public/default/orders", "a=b", 57)
    assert group == "anabranch.subscription.public.default.orders.a_b.57"
