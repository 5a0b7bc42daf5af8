"""What is decided for cold segments: merges (PIP-483, pass 2)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale.decisions import Blocked, Decision, Merge, Reason
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.topics.layout import SegmentLayout
from support.autoscale import (
    NOW_MS,
    ago,
    decided,
    load,
    policy,
    quiet,
    rates_in,
    ring,
    segments,
    streams,
)


def merged(decision: Decision) -> tuple[int, int]:
    assert isinstance(decision, Merge), decision
    assert decision.reason is Reason.COLD
    return decision.first_id, decision.second_id


# --- which are cold ---------------------------------------------------------------------------

_METRICS = {
    "msg_rate_in": 10.0,
    "bytes_rate_in": 100.0,
    "msg_rate_out": 20.0,
    "bytes_rate_out": 200.0,
}


@pytest.mark.parametrize("metric", _METRICS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("beyond", [-0.1, 0.0, 0.1])
def test_two_neighbours_are_merged_when_all_rates_of_both_are_below_their_thresholds(
    metric: str, side: int, beyond: float
) -> None:
    loads = rates_in(0, 0)
    loads[side] = replace(load(), **{metric: _METRICS[metric] + beyond})
    found = decided(segments(2), loads)
    if beyond < 0:
        assert merged(found) == (0, 1)
    else:
        assert "no two neighbours are cold for long enough" in quiet(found)


def test_a_threshold_of_nothing_never_merges() -> None:
    quiet(decided(segments(2), rates_in(0, 0), {}, policy(merge_bytes_rate_out_threshold=0)))


@pytest.mark.parametrize(
    ("seconds", "acts"), [(-5, False), (0, False), (39.999, False), (40, True), (40.001, True)]
)
@pytest.mark.parametrize("side", [0, 1])
def test_both_must_have_been_cold_for_the_merge_window(
    seconds: float, acts: bool, side: int
) -> None:
    loads = rates_in(0, 0)
    loads[side] = load(since_ms=NOW_MS - round(seconds * 1000))
    assert isinstance(decided(segments(2), loads), Merge) is acts


def test_a_segment_without_a_load_record_is_never_cold() -> None:
    for only in (0, 1):
        quiet(decided(segments(2), {only: load()}))


@pytest.mark.parametrize(
    ("seconds", "acts"), [(-5, False), (0, False), (29.999, False), (30, True), (30.001, True)]
)
def test_a_merge_waits_for_the_merge_cooldown_alone(seconds: float, acts: bool) -> None:
    found = decided(segments(2), rates_in(0, 0), last=ago(merge=seconds))
    assert isinstance(found, Merge) is acts
    if not acts:
        assert "the merge cooldown is on" in quiet(found)
    assert isinstance(decided(segments(2), rates_in(0, 0), last=ago(split=0, rebucket=0)), Merge)


@pytest.mark.parametrize(("fewest", "acts"), [(1, True), (2, False), (3, False)])
def test_the_fewest_segments_allowed_are_kept(fewest: int, acts: bool) -> None:
    found = decided(segments(2), rates_in(0, 0), {}, policy(min_segments=fewest))
    assert isinstance(found, Merge) is acts
    if not acts:
        assert "2 segments must be there at least" in quiet(found)


# --- which pair -------------------------------------------------------------------------------


def test_only_neighbours_are_merged_and_the_ring_has_two_ends() -> None:
    quiet(decided(segments(3), rates_in(0, 50, 0)))
    assert merged(decided(segments(4), rates_in(0, 50, 0, 0))) == (2, 3)


def test_neighbours_are_found_by_their_ranges_and_named_in_the_order_of_the_ring() -> None:
    topic = ring((3, 1), (0, 1), (2, 1), (1, 1))
    loads = {3: load(50), 0: load(50), 2: load(), 1: load()}
    assert merged(decided(topic, loads)) == (2, 1)


def mixed(*sums: float) -> dict[int, SegmentLoad]:
    return {
        segment_id: load(each / 10, each / 2, each / 5, each / 5)
        for segment_id, each in enumerate(sums)
    }


@pytest.mark.parametrize(
    ("loads", "coldest"),
    [
        (mixed(9, 5, 5, 9), (1, 2)),
        (mixed(9, 5, 6, 1), (2, 3)),
        (mixed(5, 5, 5, 5), (0, 1)),  # of equals, that with the lowest id
        ({0: load(9), 1: load(0, 9), 2: load(0, 0, 9), 3: load(0, 0, 0, 8)}, (2, 3)),
    ],
)
def test_the_coldest_pair_by_the_sum_of_all_rates_is_merged(
    loads: dict[int, SegmentLoad], coldest: tuple[int, int]
) -> None:
    assert merged(decided(segments(4), loads)) == coldest


def test_of_equally_cold_pairs_that_with_the_lowest_id_is_merged_wherever_it_lies() -> None:
    topic = ring((3, 1), (2, 1), (1, 1), (0, 1))
    assert merged(decided(topic, rates_in(1, 1, 1, 1))) == (1, 0)
    assert merged(decided(ring((2, 1), (0, 1), (1, 1)), rates_in(1, 1, 1))) == (2, 0)


def test_a_merge_says_the_figures() -> None:
    found = decided(segments(2), {0: load(1, 20), 1: load(0, 30.5, 4)})
    assert isinstance(found, Merge)
    assert found.why == (
        "segments 0 and 1 have been below every merge threshold for 40 s, the coldest such pair"
    )


# --- how often --------------------------------------------------------------------------------


def cycled(times: int) -> SegmentLayout:
    """One half of the ring was split and merged again so many times."""
    topic = segments(2)
    for _ in range(times):
        topic = topic.split_segment(topic.active[0].segment_id)
        low, high = topic.active[:2]
        topic = topic.merge_segments(low.segment_id, high.segment_id)
    return topic


def all_cold(topic: SegmentLayout) -> dict[int, SegmentLoad]:
    return {part.segment_id: load() for part in topic.active}


@pytest.mark.parametrize(
    ("depth", "most", "acts"),
    [(0, 0, False), (0, 1, True), (2, 3, True), (3, 3, False), (4, 3, False)],
)
def test_a_lineage_is_merged_so_often_at_most(depth: int, most: int, acts: bool) -> None:
    topic = cycled(depth)
    assert topic.merge_depth(topic.active[0].segment_id) == depth
    found = decided(topic, all_cold(topic), {}, policy(max_dag_depth=most))
    assert isinstance(found, Merge) is acts
    if not acts:
        assert "cold neighbours have been merged too often" in quiet(found, Blocked.MAX_DAG_DEPTH)


def test_the_depth_is_told_of_only_where_the_neighbours_are_cold() -> None:
    topic = cycled(3)
    quiet(decided(topic, {topic.active[0].segment_id: load()}), None)


def test_either_side_may_be_the_one_that_was_merged_too_often() -> None:
    topic = segments(2)
    topic = topic.split_segment(1).merge_segments(2, 3)
    assert [topic.merge_depth(part.segment_id) for part in topic.active] == [0, 1]
    found = decided(topic, all_cold(topic), {}, policy(max_dag_depth=1))
    quiet(found, Blocked.MAX_DAG_DEPTH)


def test_another_pair_is_merged_while_one_lineage_has_had_enough() -> None:
    topic = cycled(3).split_segment(1)
    assert merged(decided(topic, all_cold(topic))) == (
        topic.active[1].segment_id,
        topic.active[2].segment_id,
    )


def test_a_merge_above_both_sides_counts_once() -> None:
    topic = segments(2).merge_segments(0, 1).split_segment(2).merge_segments(3, 4)
    assert topic.merge_depth(5) == 2
    diamond = topic.split_segment(5)  # 6 and 7
    diamond = diamond.split_segment(6).split_segment(7)  # 8, 9 and 10, 11
    diamond = diamond.merge_segments(9, 10)  # 12: both sides descend from 2 and 5
    assert diamond.merge_depth(12) == 3


def test_splits_and_rebuckets_do_not_count_as_merges() -> None:
    topic = segments(2)
    for _ in range(4):
        topic = topic.split_segment(topic.active[0].segment_id)
        topic = topic.rebucket_segment(topic.active[0].segment_id, len(topic.active))
    assert topic.merge_depth(topic.active[0].segment_id) == 0


def test_merges_that_are_pruned_do_not_count_any_more() -> None:
    topic = cycled(2)
    merge = topic.segments[topic.active[0].parent_ids[0]].parent_ids[0]
    assert topic.merge_depth(merge) == 1
    for segment_id in (0, 2, 3, merge):
        topic = topic.prune_segment(segment_id)
    assert topic.merge_depth(topic.active[0].segment_id) == 1


# --- what consumers would lose ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ceiling", "consumers", "acts"),
    [
        (8, 8, True),  # the pair's buckets all fit
        (7, 7, True),
        (7, 8, False),
        (4, 4, True),
        (4, 5, False),
        (4, 99, False),
    ],
)
def test_a_merge_leaves_every_consumer_the_bucket_that_it_has(
    ceiling: int, consumers: int, acts: bool
) -> None:
    policy_ = policy(max_entry_buckets_per_segment=ceiling, rebucket_cooldown_seconds=1e6)
    found = decided(
        segments(2, buckets=4), rates_in(0, 0), streams(consumers), policy_, ago(rebucket=0)
    )
    assert isinstance(found, Merge) is acts
    if not acts:
        assert "leave consumers without entry buckets" in quiet(found, Blocked.MAX_ENTRY_BUCKETS)


def test_consumers_count_for_what_a_merge_may_take_away() -> None:
    policy_ = policy(max_entry_buckets_per_segment=1)
    assert isinstance(decided(segments(2), rates_in(0, 0), streams(1), policy_), Merge)
    found = decided(segments(2), rates_in(0, 0), streams(2), policy_)
    quiet(found, Blocked.MAX_ENTRY_BUCKETS)


def test_what_is_too_deep_is_told_before_what_consumers_would_lose() -> None:
    topic = cycled(3)
    topic = topic.split_segment(1)
    low, middle, high = topic.active
    policy_ = policy(max_entry_buckets_per_segment=1)
    loads = all_cold(topic)
    quiet(decided(topic, loads, streams(4), policy_, ago(rebucket=0)), Blocked.MAX_DAG_DEPTH)
    del loads[low.segment_id]
    quiet(decided(topic, loads, streams(4), policy_, ago(rebucket=0)), Blocked.MAX_ENTRY_BUCKETS)
    assert {middle.segment_id, high.segment_id} == set(loads)


# --- what would be undone at once -------------------------------------------------------------


@pytest.mark.parametrize(("each", "acts"), [(50.0, True), (50.1, False)])
def test_two_that_would_be_overloaded_as_one_are_not_merged(each: float, acts: bool) -> None:
    narrow = policy(merge_msg_rate_in_threshold=80)
    found = decided(segments(2), rates_in(each, each), {}, narrow)
    assert isinstance(found, Merge) is acts
    if not acts:
        assert "would be split again at once if they were merged" in quiet(found)


@pytest.mark.parametrize(
    ("consumers", "rate", "acts"),
    [
        (2, 14.9, True),  # the merged segment would be below the rate floor
        (2, 15.0, False),
        (1, 15.0, True),  # one consumer has the one segment
    ],
)
def test_a_merge_that_the_consumers_would_have_undone_is_left_out(
    consumers: int, rate: float, acts: bool
) -> None:
    policy_ = policy(merge_msg_rate_in_threshold=20)
    found = decided(segments(2, 4), rates_in(rate, rate), streams(consumers), policy_)
    assert isinstance(found, Merge) is acts


def test_the_consumers_would_split_another_segment_that_is_busy() -> None:
    busy_elsewhere = rates_in(0, 0, 30)
    quiet(decided(segments(3, 2), busy_elsewhere, streams(3)))
    assert merged(decided(segments(3, 2), busy_elsewhere, streams(2))) == (0, 1)
    assert merged(decided(segments(3, 2), rates_in(0, 0, 29), streams(3))) == (0, 1)
