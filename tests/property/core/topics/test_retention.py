"""What is kept: no position goes back by itself, and nothing unread, or young, is deleted."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import SegmentState
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.subscriptions.draining import drained_by_positions
from anabranch.core.topics.retention import expiring, trims, written_down

PLACES = ("a", "b", "c")
OFFSETS = st.integers(0, 20)
EVERYWHERE = st.fixed_dictionaries(dict.fromkeys(PLACES, OFFSETS))
SOMEWHERE = st.dictionaries(st.sampled_from(PLACES), OFFSETS)
KNOWN = Subscription(1, SubscriptionKind.STREAM, 7, (), (), (), 10_000, 0, "")


@given(EVERYWHERE, EVERYWHERE, st.lists(SOMEWHERE, max_size=4))
def test_nothing_is_deleted_that_somebody_has_to_read_or_that_is_young(
    begins: dict[str, int], old: dict[str, int], positions: list[dict[str, int]]
) -> None:
    found = trims(begins, old, positions)
    for place, up_to in found.items():
        assert begins[place] < up_to <= old[place]
        assert all(place in each and up_to <= each[place] for each in positions)
    for place in begins.keys() - found.keys():
        limits = [old[place], *(each.get(place, 0) for each in positions)]
        assert min(limits) <= begins[place], "all that may go goes"


@given(
    st.lists(st.lists(OFFSETS, min_size=2, max_size=2), min_size=2, max_size=2),
    st.sets(st.integers(0, 1)),
    st.lists(OFFSETS, min_size=2, max_size=2),
)
def test_what_is_written_down_is_where_it_goes_on_in_all_that_is_left(
    at: list[list[int]], drained: set[int], ends: list[int]
) -> None:
    first, second = initial_segments(2)
    sealed = replace(first, state=SegmentState.SEALED, end_offsets=tuple(ends))
    known = replace(KNOWN, drained=tuple(sorted(drained)))
    given_ = {(s, b): offset for s, offsets in enumerate(at) for b, offset in enumerate(offsets)}
    found = written_down(known, (sealed, second), given_)
    after = replace(known, positions=found)
    for (segment_id, bucket), offset in given_.items():
        most = ends[bucket] if segment_id == 0 else math.inf
        expected = 0 if segment_id in drained else min(offset, most)
        assert after.position(segment_id, bucket) == expected
    assert not drained & {each.segment_id for each in found}
    assert all(any(each.offsets) for each in found)


@st.composite
def layouts(draw: st.DrawFn) -> SegmentLayout:
    """Splits of what is active, each sealed at some ends."""
    layout = SegmentLayout.initial(2)
    for _ in range(draw(st.integers(0, 4))):
        part = draw(st.sampled_from(layout.active))
        many = st.lists(st.integers(0, 2), min_size=part.buckets, max_size=part.buckets)
        ends = {part.segment_id: tuple(draw(many))}
        children = layout.split_children(part.segment_id)
        layout = layout.replaced((part.segment_id,), children, ends, 0)
    return layout


@given(layouts(), st.data())
def test_positions_say_drained_what_is_read_to_its_end_after_all_above_it(
    layout: SegmentLayout, data: st.DataObject
) -> None:
    parts = layout.segments.values()
    places = [(part.segment_id, bucket) for part in parts for bucket in range(part.buckets)]
    at = data.draw(st.dictionaries(st.sampled_from(places), st.integers(0, 3)))
    logged: set[int] = set()
    for part in parts:
        above = layout.ancestors(part.segment_id) <= logged
        if not part.is_active and above and data.draw(st.booleans()):
            logged.add(part.segment_id)
    found = drained_by_positions(layout, logged, at)
    for part in parts:
        number, ends = part.segment_id, part.end_offsets
        read = all(at.get((number, bucket), 0) >= end for bucket, end in enumerate(ends))
        above = layout.ancestors(number) <= logged | set(found)
        through = not part.is_active and number not in logged and read and above
        assert (number in found) is through


@given(st.integers(10_000, 10_000_000), st.integers(1, 1_000), st.sampled_from(SubscriptionKind))
def test_a_subscription_expires_after_its_whole_time_and_is_announced_before(
    log_ms: int, expiry_s: int, kind: SubscriptionKind
) -> None:
    known = replace(KNOWN, kind=kind)
    found = expiring(known, log_ms, expiry_s)
    assert found is not None
    rest_s = (log_ms - known.since_ms) / 1000
    if found.left_s <= 0:
        assert found.soon
        assert rest_s >= expiry_s
    if rest_s < 0.7 * expiry_s:
        assert not found.soon
    if kind is SubscriptionKind.QUEUE and rest_s >= expiry_s / 5:
        assert found.untold, "a queue that is in use is told of long before"
    assert expiring(known, log_ms, math.inf) is None
