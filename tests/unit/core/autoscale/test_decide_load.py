"""What is decided for load: splits, a hot key, and merges of what is cold (PIP-483)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.autoscale.decide import LastActions
from anabranch.core.autoscale.decisions import (
    Blocked,
    Decision,
    Merge,
    NoAction,
    Reason,
    Rebucket,
    Split,
    describe,
)
from anabranch.core.autoscale.load import SegmentLoad, rate_in_words
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import RING16_END, new_segment
from support.autoscale import (
    NOW_MS,
    acts_or_says,
    ago,
    decided,
    load,
    one_hash,
    policy,
    quiet,
    rates_in,
    ring,
    segments,
    split,
    streams,
)

# --- too much load ----------------------------------------------------------------------------

_METRICS = {
    "msg_rate_in": (100, Reason.MSG_RATE_IN),
    "bytes_rate_in": (1_000, Reason.BYTES_RATE_IN),
    "msg_rate_out": (200, Reason.MSG_RATE_OUT),
    "bytes_rate_out": (2_000, Reason.BYTES_RATE_OUT),
}


@pytest.mark.parametrize("metric", _METRICS)
@pytest.mark.parametrize("beyond", [-0.1, 0.0, 0.1])
def test_a_segment_is_split_when_a_rate_is_over_its_threshold(metric: str, beyond: float) -> None:
    threshold, reason = _METRICS[metric]
    found = decided(segments(1), {0: replace(load(), **{metric: threshold + beyond})})
    if beyond > 0:
        assert split(found) == (0, reason)
    else:
        assert "no segment is over a split threshold" in quiet(found)


@pytest.mark.parametrize(
    ("rate", "said"), [(0.0, "0"), (0.04567, "0.0457"), (54_321_987.0, "54300000")]
)
def test_a_rate_is_said_with_three_significant_digits_and_no_exponent(
    rate: float, said: str
) -> None:
    assert rate_in_words(rate) == said


def test_a_split_for_load_says_the_figures() -> None:
    found = decided(segments(1), {0: load(bytes_in=1_234.5)})
    assert isinstance(found, Split)
    assert found.why == "byteRateIn of segment 0 is 1230/s, over 1000"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (load(200, 1_500), Reason.MSG_RATE_IN),
        (load(150, 2_000), Reason.BYTES_RATE_IN),
        (load(200, 2_000, 400, 4_000), Reason.MSG_RATE_IN),
        (load(0, 0, 400, 4_000), Reason.MSG_RATE_OUT),
        (load(0, 0, 400, 4_001), Reason.BYTES_RATE_OUT),
    ],
)
def test_the_reason_is_the_rate_that_is_furthest_over_and_the_first_of_equals(
    given: SegmentLoad, reason: Reason
) -> None:
    assert split(decided(segments(1), {0: given})) == (0, reason)


@pytest.mark.parametrize(
    ("loads", "worst"),
    [
        (rates_in(150, 151), 1),
        (rates_in(150, 150), 0),
        ({0: load(150), 1: load(bytes_out=3_001)}, 1),
        ({0: load(150), 1: load(bytes_out=3_000)}, 0),
    ],
)
def test_the_most_overloaded_segment_is_split_and_the_lowest_id_of_equals(
    loads: dict[int, SegmentLoad], worst: int
) -> None:
    assert split(decided(segments(2), loads))[0] == worst


@pytest.mark.parametrize(("seconds", "acts"), [(-5, False), (9.999, False), (10, True)])
def test_a_split_waits_for_the_split_cooldown_and_for_no_other(seconds: float, acts: bool) -> None:
    last = LastActions(NOW_MS - round(seconds * 1000), NOW_MS, NOW_MS)
    for_load = decided(segments(1), rates_in(150), last=last)
    assert isinstance(for_load, Split) is acts
    assert acts or "over 100, but the split cooldown is on" in quiet(for_load)
    for_consumers = decided(segments(2), rates_in(50, 50), streams(3), last=last)
    assert isinstance(for_consumers, Split) is acts


def test_the_cap_goes_before_the_cooldown_and_that_before_a_range_of_one_hash() -> None:
    loads = {0: load(150), 1: load(5)}
    at_cap = decided(one_hash(), loads, {}, policy(max_segments=2), ago(split=1))
    quiet(at_cap, Blocked.MAX_SEGMENTS)
    assert "cooldown" in quiet(decided(one_hash(), loads, last=ago(split=1)))
    quiet(decided(one_hash(), loads), Blocked.UNSPLITTABLE)


# --- what splits do not divide ----------------------------------------------------------------


def halved(times: int) -> SegmentLayout:
    """A topic whose lowest half was split again and again: the hot key is at hash 0."""
    topic = segments(1)
    for _ in range(times):
        topic = topic.split_segment(topic.active[0].segment_id)
    return topic


@pytest.mark.parametrize(("times", "wait_s"), [(0, 10), (1, 20), (3, 80), (9, 640)])
def test_each_split_that_left_all_load_on_one_side_doubles_the_wait_six_times_at_most(
    times: int, wait_s: float
) -> None:
    topic, many = halved(times), policy(max_segments=64)
    hot = {topic.active[0].segment_id: load(150)}
    assert isinstance(decided(topic, hot, {}, many, ago(split=wait_s)), Split)
    why = quiet(decided(topic, hot, {}, many, ago(split=wait_s - 0.001)))
    assert "cooldown is on" in why or "left nearly all of it on one side" in why


def test_a_hot_key_may_lie_in_either_half_and_only_what_was_divided_with_it_counts() -> None:
    topic = segments(4).split_segment(1)  # 4 and 5 in place of 1
    for hot, cool in ((4, 5), (5, 4)):
        for beside, acts in ((11.0, False), (11.1, True)):
            loads = {hot: load(110), cool: load(beside), 0: load(90), 2: load(90), 3: load(90)}
            assert isinstance(decided(topic, loads, last=ago(split=10)), Split) is acts


def test_a_range_of_two_hashes_is_split() -> None:
    parts = [new_segment(0, 0, 1, 1), new_segment(1, 2, RING16_END, 1)]
    assert split(decided(SegmentLayout(0, 2, parts), rates_in(150))) == (0, Reason.MSG_RATE_IN)


def test_the_next_most_overloaded_segment_is_split_while_a_hot_key_waits() -> None:
    topic = segments(2).split_segment(0)  # 2 and 3 in place of 0
    found = decided(topic, {2: load(200), 1: load(150)}, last=ago(split=10))
    assert split(found) == (1, Reason.MSG_RATE_IN)


def test_a_range_of_one_hash_is_not_split_in_place_of_a_hot_key_that_waits() -> None:
    found = decided(one_hash().split_segment(1), {0: load(150), 2: load(2_000)}, last=ago(split=10))
    assert "left nearly all of it on one side" in quiet(found)


def test_a_rebucket_in_between_says_nothing_of_a_hot_key() -> None:
    topic = halved(1)
    hot = topic.active[0].segment_id
    topic = topic.rebucket_segment(hot, 7)
    hot = topic.active[0].segment_id
    for seconds, acts in ((19.9, False), (20, True)):
        assert isinstance(decided(topic, {hot: load(150)}, last=ago(split=seconds)), Split) is acts


def test_a_merge_is_a_new_beginning_for_a_hot_key_even_when_a_parent_is_pruned() -> None:
    topic = segments(2)
    topic = topic.split_segment(0).split_segment(1)  # 2, 3 and 4, 5
    topic = topic.merge_segments(3, 4)
    assert isinstance(decided(topic, {6: load(150)}, last=ago(split=10)), Split)
    for gone in (0, 3):
        topic = topic.prune_segment(gone)
    assert topic.segments[6].parent_ids == (4,)
    assert isinstance(decided(topic, {6: load(150)}, last=ago(split=10)), Split)


# --- in words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Split(3, Reason.COLD, ""), "split 3"),
        (Merge(3, 4, Reason.COLD, ""), "merge 3 4"),
        (Rebucket(tuple(range(8)), 8, Reason.COLD, ""), "rebucket 0,1,2,3,4,5,6,7 to 8"),
        (Rebucket(tuple(range(9)), 8, Reason.COLD, ""), "rebucket 0,1,2,3,4,5,6,7,... to 8"),
        (NoAction(None, ""), "none"),
    ],
)
def test_a_decision_is_described_in_few_words(decision: Decision, words: str) -> None:
    assert describe(decision) == words


# --- cold segments --------------------------------------------------------------------------------


def merged(decision: Decision) -> tuple[int, int]:
    assert isinstance(decision, Merge), decision
    assert decision.reason is Reason.COLD
    return decision.first_id, decision.second_id


# --- which are cold ---------------------------------------------------------------------------

_COLD = {
    "msg_rate_in": 10.0,
    "bytes_rate_in": 100.0,
    "msg_rate_out": 20.0,
    "bytes_rate_out": 200.0,
}


@pytest.mark.parametrize("metric", _COLD)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("beyond", [-0.1, 0.0, 0.1])
def test_two_neighbours_are_merged_when_all_rates_of_both_are_below_their_thresholds(
    metric: str, side: int, beyond: float
) -> None:
    loads = rates_in(0, 0)
    loads[side] = replace(load(), **{metric: _COLD[metric] + beyond})
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
