"""Whatever is done to a layout: its active segments tile the ring and its DAG stays sound."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client import Segment
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    RING16_END,
    SegmentInfo,
    parents_of,
    stretches,
    tile,
)
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import bucket_of, bucket_starts
from support.still_watch import layout_of

Run = list[SegmentLayout]


def changed(layout: SegmentLayout, rng: random.Random) -> SegmentLayout | None:
    """The layout after an operation on any segments; None when it is refused."""
    ids = list(layout.segments)
    what, first = rng.random(), rng.choice(ids)
    active = [part.segment_id for part in layout.active]
    place = rng.randrange(len(active))
    try:
        if what < 0.4:
            return layout.split_segment(rng.choice((first, rng.choice(active))), now_ms=9)
        if what < 0.7 and len(active) > 1:
            pair = (active[place - 1], active[place])
            return layout.merge_segments(*rng.choice((pair, pair[::-1], (first, active[place]))))
        if what < 0.76:
            count = rng.choice((1, 2, 3, 5, 8, len(active)))
            prepared = layout.prepare_segments(count, rng.choice((None, None, 1, 4)), now_ms=9)
            return None if prepared is layout else prepared
        if what < 0.82:
            return layout.rebucket_segment(active[place], rng.choice((1, 2, 3, 8, BUCKETS_MAX)))
        return layout.prune_segment(first)
    except InvalidInputError:
        return None


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """The layouts of a random sequence of operations."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    run = [SegmentLayout.initial(draw(st.sampled_from((1, 2, 3, 7, 50))))]
    for _ in range(draw(st.integers(0, 40))):
        after = changed(run[-1], rng)
        if after is not None:
            run.append(after)
    return run


def sound(layout: SegmentLayout) -> None:
    """The DAG: parents and children agree, ids ascend along it (so it has no cycle)."""
    for part in layout.segments.values():
        assert part.is_active == (not part.sealed_at_epoch)
        assert not (part.is_active and part.child_ids)
        assert 1 <= part.buckets <= BUCKETS_MAX
        assert part.segment_id < layout.next_segment_id
        for child_id in part.child_ids:
            child = layout.segments[child_id]
            assert part.segment_id in child.parent_ids
            assert part.segment_id < child_id
            assert child.created_at_epoch == part.sealed_at_epoch
        for parent_id in part.parent_ids:
            assert part.segment_id in layout.segments[parent_id].child_ids
        assert part.segment_id not in layout.ancestors(part.segment_id)


@given(runs())
def test_any_sequence_of_operations_keeps_the_tiling_and_the_dag(run: Run) -> None:
    for place, layout in enumerate(run):
        assert layout.epoch == place
        assert tile(layout.active)
        sound(layout)


@given(runs())
def test_new_segments_cover_exactly_what_was_sealed_for_them(run: Run) -> None:
    for before, after in pairwise(run):
        born = [after.segments[each] for each in after.segments.keys() - before.segments.keys()]
        left = {part.segment_id for part in after.active}
        gone = [part for part in before.active if part.segment_id not in left]
        if born:
            assert stretches(born) == stretches(gone) is not None
            assert set(parents_of(born)) == {part.segment_id for part in gone}
            for part in born:
                above = [each.segment_id for each in gone if overlap(each, part)]
                assert sorted(part.parent_ids) == sorted(above)
        else:
            assert not gone


@given(runs(), st.integers(1, 70), st.sampled_from((None, 1, 3)))
def test_any_layout_is_prepared_to_any_number_of_equal_segments_at_once(
    run: Run, count: int, buckets: int | None
) -> None:
    before = run[-1]
    after = before.prepare_segments(count, buckets)
    born = after.prepare_children(count, buckets)
    assert born == (), "nothing is left to do"
    assert [part.range for part in after.active] == [
        part.range for part in SegmentLayout.initial(count).active
    ]
    assert buckets is None or {part.buckets for part in after.active} == {buckets}
    new = [part.segment_id for part in after.active if part.segment_id not in before.segments]
    assert new == list(range(before.next_segment_id, after.next_segment_id))
    assert after.epoch == before.epoch + bool(new)
    for each in new:
        part = after.segments[each]
        assert part.parent_ids == tuple(
            sorted(up.segment_id for up in before.active if overlap(up, part))
        )
        assert not any(after.segments[up].is_active for up in part.parent_ids)


def overlap(one: SegmentInfo, other: SegmentInfo) -> bool:
    return one.start in other or other.start in one


@given(runs())
def test_ids_are_never_used_again(run: Run) -> None:
    born: dict[int, SegmentInfo] = {}
    for layout in run:
        for part in layout.segments.values():
            first = born.setdefault(part.segment_id, part)
            kept = (part.start, part.end, part.buckets, part.created_at_epoch)
            assert kept == (first.start, first.end, first.buckets, first.created_at_epoch)


@given(runs(), st.integers(1, 9), st.integers(0, RING16_END))
def test_a_hash_has_the_child_under_way_that_covers_it_or_none(
    run: Run, count: int, hash16: int
) -> None:
    children = run[-1].prepare_children(count)
    coming = tuple(Segment(part, "") for part in reversed(children))
    seen = layout_of(run[-1], children=coming)
    covering = [part.segment_id for part in children if hash16 in part]
    found = seen.child_at(hash16)
    assert covering == ([found.segment_id] if found else [])


@given(runs(), st.integers(0, RING16_END))
def test_a_hash_has_one_active_segment(run: Run, hash16: int) -> None:
    covering = [part for part in run[-1].active if hash16 in part]
    assert covering == [run[-1].find_active_segment(hash16)]


@given(runs())
def test_ancestors_are_the_same_seen_from_either_end(run: Run) -> None:
    layout = run[-1]
    for each, part in layout.segments.items():
        parents = {up for up in layout.segments if each in layout.segments[up].child_ids}
        assert parents == set(part.parent_ids) & layout.segments.keys()
        assert layout.ancestors(each) == parents.union(*map(layout.ancestors, parents))


@given(runs())
def test_a_lineage_is_all_that_is_on_one_line_of_descent_with_a_segment(run: Run) -> None:
    layout = run[-1]
    above = {each: layout.ancestors(each) for each in layout.segments}
    for each in layout.segments:
        on_it = [other for other in above if other in above[each] or each in above[other]]
        found = [part.segment_id for part in layout.lineage(each)]
        assert found == sorted([each, *on_it])
        assert [part.segment_id for part in layout_of(layout).lineage(each)] == found


def anew(layout: SegmentLayout) -> SegmentLayout:
    """The same layout, of which nothing was worked out yet."""
    return SegmentLayout(layout.epoch, layout.next_segment_id, layout.segments.values())


def depths(layout: SegmentLayout) -> dict[int, int]:
    return {each: layout.merge_depth(each) for each in layout.segments}


@given(runs(), st.randoms(use_true_random=False))
def test_what_a_layout_takes_over_of_merges_is_what_it_would_find_itself(
    run: Run, rng: random.Random
) -> None:
    for _ in range(10):
        before, after = rng.choice(run), rng.choice(run)  # neighbours or not, in any order
        expected = depths(anew(after))
        depths(before)
        assert depths(anew(after).following(before)) == expected


@given(st.integers(0, 1 << 32))
def test_what_operations_hand_on_of_merges_is_what_a_layout_would_find_itself(seed: int) -> None:
    rng, layout = random.Random(seed), SegmentLayout.initial(3)
    for _ in range(40):
        depths(layout)
        layout = changed(layout, rng) or layout
        assert depths(layout) == depths(anew(layout))


@given(st.integers(1, BUCKETS_MAX), st.integers(0, RING16_END))
def test_the_bucket_of_a_hash_is_the_last_that_begins_at_or_before_it(
    buckets: int, hash16: int
) -> None:
    starts = (0, *bucket_starts(buckets))
    expected = max(number for number, start in enumerate(starts) if start <= hash16)
    assert bucket_of(0xABCD0000 | hash16, buckets) == expected


def test_the_random_operations_are_of_every_kind() -> None:
    seen, refused = set(), 0
    for seed in range(30):
        rng, layout = random.Random(seed), SegmentLayout.initial(3)
        for _ in range(60):
            after = changed(layout, rng)
            if after is None:
                refused += 1
                continue
            born = after.segments.keys() - layout.segments.keys()
            parents = {after.segments[each].parent_ids for each in born}
            seen.add((len(born), *(len(ids) for ids in parents)))
            layout = after
    assert seen >= {(2, 1), (1, 2), (1, 1), (0,)}  # split, merge, rebucket, prune
    assert any(born > 2 and max(parents) > 1 for born, *parents in seen if parents)  # prepare
    assert refused
