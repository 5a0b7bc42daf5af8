"""What is decided for cold segments: merges (PIP-483, pass 2)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale.decisions import Blocked, Decision, Merge, Reason
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.topics.layout import SegmentLayout
from support.autoscale import (
    NOW_MS,
    acts_or_says,
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


@pytest.mark.parametrize(("seconds", "acts"), [(-5, False), (39.999, False), (40, True)])
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


@pytest.mark.parametrize(("seconds", "acts"), [(-5, False), (29.999, False), (30, True)])
def test_a_merge_waits_for_the_merge_cooldown_alone(seconds: float, acts: bool) -> None:
    found = decided(segments(2), rates_in(0, 0), last=ago(merge=seconds))
    acts_or_says(found, Merge, acts, "the merge cooldown is on")
    assert isinstance(decided(segments(2), rates_in(0, 0), last=ago(split=0, rebucket=0)), Merge)


@pytest.mark.parametrize(("fewest", "acts"), [(1, True), (2, False)])
def test_the_fewest_segments_allowed_are_kept(fewest: int, acts: bool) -> None:
    found = decided(segments(2), rates_in(0, 0), {}, policy(min_segments=fewest))
    acts_or_says(found, Merge, acts, "2 segments must be there at least")


# --- which pair -------------------------------------------------------------------------------


def test_only_neighbours_are_merged_and_the_ring_has_two_ends() -> None:
    quiet(decided(segments(3), rates_in(0, 50, 0)))
    assert merged(decided(segments(4), rates_in(0, 50, 0, 0))) == (2, 3)


def mixed(*sums: float) -> dict[int, SegmentLoad]:
    return {
        segment_id: load(each / 10, each / 2, each / 5, each / 5)
        for segment_id, each in enumerate(sums)
    }


@pytest.mark.parametrize(
    ("loads", "coldest"),
    [
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
    assert merged(decided(ring((3, 1), (2, 1), (1, 1), (0, 1)), rates_in(1, 1, 1, 1))) == (1, 0)
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


@pytest.mark.parametrize(("depth", "most", "acts"), [(0, 0, False), (2, 3, True), (3, 3, False)])
def test_a_lineage_is_merged_so_often_at_most(depth: int, most: int, acts: bool) -> None:
    topic = cycled(depth)
    assert topic.merge_depth(topic.active[0].segment_id) == depth
    found = decided(topic, all_cold(topic), {}, policy(max_dag_depth=most))
    acts_or_says(
        found, Merge, acts, "cold neighbours have been merged too often", Blocked.MAX_DAG_DEPTH
    )


def test_either_side_may_be_the_one_that_was_merged_too_often() -> None:
    topic = segments(2)
    topic = topic.split_segment(1).merge_segments(2, 3)
    assert [topic.merge_depth(part.segment_id) for part in topic.active] == [0, 1]
    quiet(decided(topic, all_cold(topic), {}, policy(max_dag_depth=1)), Blocked.MAX_DAG_DEPTH)


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


# --- what consumers would lose ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ceiling", "consumers", "acts"),
    [
        (8, 8, True),  # the pair's buckets all fit
        (7, 8, False),
        (4, 4, True),
        (4, 5, False),
    ],
)
def test_a_merge_leaves_every_consumer_the_bucket_that_it_has(
    ceiling: int, consumers: int, acts: bool
) -> None:
    policy_ = policy(max_entry_buckets_per_segment=ceiling, rebucket_cooldown_seconds=1e6)
    found = decided(
        segments(2, buckets=4), rates_in(0, 0), streams(consumers), policy_, ago(rebucket=0)
    )
    acts_or_says(
        found, Merge, acts, "leave consumers without entry buckets", Blocked.MAX_ENTRY_BUCKETS
    )


# --- what would be undone at once -------------------------------------------------------------


@pytest.mark.parametrize(("each", "acts"), [(50.0, True), (50.1, False)])
def test_two_that_would_be_overloaded_as_one_are_not_merged(each: float, acts: bool) -> None:
    narrow = policy(merge_msg_rate_in_threshold=80)
    found = decided(segments(2), rates_in(each, each), {}, narrow)
    acts_or_says(found, Merge, acts, "would be split again at once if they were merged")


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
