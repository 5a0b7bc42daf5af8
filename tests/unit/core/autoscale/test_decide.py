"""What is decided for consumers: splits, or more or fewer buckets (PIP-483, pass 1a; PIP-486)."""

from __future__ import annotations

import pytest

from anabranch.core.autoscale.decide import Demand, LastActions
from anabranch.core.autoscale.decisions import Blocked, Decision, Merge, Reason, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import RING16_END, new_segment
from support.autoscale import (
    NOW_MS,
    POLICY,
    acts_or_says,
    ago,
    decided,
    load,
    one_hash,
    policy,
    quiet,
    rates_in,
    rebucket,
    ring,
    segments,
    split,
    streams,
)

# --- the order of the passes ------------------------------------------------------------------


def test_nothing_is_decided_when_it_is_switched_off() -> None:
    found = decided(segments(1), rates_in(500), streams(9), policy(enabled=False))
    assert quiet(found) == "auto-scaling is switched off"


def test_a_topic_without_load_or_consumers_is_left_alone_and_every_pass_says_why() -> None:
    assert quiet(decided(segments(1))) == (
        "0 consumers for 1 segment; no segment is over a split threshold; "
        "1 segment must be there at least; no segment has entry buckets to spare"
    )


def test_consumers_go_before_load_and_that_before_a_merge_and_that_before_buckets_to_spare() -> (
    None
):
    cold_and_hot = {**rates_in(40, 0, 0), 3: load(bytes_in=1_500)}
    topic = segments(4)
    assert split(decided(topic, cold_and_hot, streams(5))) == (0, Reason.CONSUMER_COUNT)
    assert split(decided(topic, cold_and_hot, streams(4))) == (3, Reason.BYTES_RATE_IN)
    assert isinstance(decided(topic, rates_in(40, 0, 0, 0), streams(2)), Merge)
    assert isinstance(decided(segments(2, buckets=8), rates_in(0, 0)), Merge)
    found = decided(segments(2, buckets=8), rates_in(0, 0), policy=policy(min_segments=2))
    assert rebucket(found) == ((0, 1), 2, Reason.BUCKET_SURPLUS)


def test_a_pass_that_waits_for_its_cooldown_lets_the_next_one_act() -> None:
    loads = rates_in(150, 0, 0)
    found = decided(segments(3), loads, streams(1), last=ago(split=1))
    assert isinstance(found, Merge)
    found = decided(segments(3), rates_in(40, 0, 0), streams(4), last=ago(split=1))
    assert "waits for the split cooldown" in quiet(found)


def test_of_several_things_in_the_way_the_first_is_told() -> None:
    eight = segments(8)
    busy = rates_in(*[150.0] * 8)
    found = decided(eight, busy, streams(200), policy(max_entry_buckets_per_segment=1))
    assert "over 100, but there are 8 segments" in quiet(found, Blocked.MAX_ENTRY_BUCKETS)
    assert "over 100, but there are 8 segments" in quiet(
        decided(eight, busy, streams(3)), Blocked.MAX_SEGMENTS
    )


def test_a_range_of_one_hash_ends_the_evaluation_before_what_else_could_be_done() -> None:
    parts = [new_segment(0, 0, 0, 1)]
    parts += [new_segment(n, 1 + (n - 1) * 100, n * 100, 1) for n in (1, 2)]
    parts += [new_segment(3, 201, RING16_END, 1)]
    topic = SegmentLayout(0, 4, parts)
    assert quiet(decided(topic, rates_in(150, 0, 0, 0)), Blocked.UNSPLITTABLE) == (
        "segment 0 should be split, but its range is one hash"
    )
    assert isinstance(decided(topic, rates_in(100, 0, 0, 0)), Merge)


# --- more consumers than segments -------------------------------------------------------------


def test_nothing_is_made_for_consumers_that_are_away_and_nothing_taken_from_them() -> None:
    busy, idle = rates_in(50, 50), rates_in(0, 0)
    demand = {"s": Demand(5, NOW_MS, away=3)}
    for two in (demand, streams(2), streams(2, 2)):
        assert "2 consumers for 2 segments" in quiet(decided(segments(2), busy, two))
    assert isinstance(decided(segments(2), busy, {"s": Demand(5, NOW_MS, away=2)}), Split)
    narrow = policy(max_entry_buckets_per_segment=1)
    away = {"s": Demand(2, NOW_MS, away=2)}
    quiet(decided(segments(2), idle, away, narrow), Blocked.MAX_ENTRY_BUCKETS)


@pytest.mark.parametrize(
    ("rate", "most", "expected"),
    [
        (29.9, 3, ((0, 1), 2, Reason.BELOW_SPLIT_RATE_FLOOR)),
        (30.0, 3, (1, Reason.CONSUMER_COUNT)),
        (30.0, 2, ((0, 1), 2, Reason.AT_MAX_SEGMENTS)),
    ],
)
def test_the_busiest_segment_is_split_from_the_rate_floor_on_unless_there_are_the_most(
    rate: float, most: int, expected: tuple[object, ...]
) -> None:
    found = decided(segments(2), rates_in(5, rate), streams(3), policy(max_segments=most))
    assert (split(found) if isinstance(found, Split) else rebucket(found)) == expected


@pytest.mark.parametrize(
    ("loads", "busiest"),
    [
        (rates_in(40, 50, 50), 1),
        (rates_in(40, 50, 51), 2),
        ({1: load(30), 2: load(30, 99_999)}, 1),  # bytes do not count here
    ],
)
def test_the_busiest_segment_takes_most_messages_and_has_the_lowest_id_of_equals(
    loads: dict[int, SegmentLoad], busiest: int
) -> None:
    assert split(decided(segments(3), loads, streams(4))) == (busiest, Reason.CONSUMER_COUNT)


def test_the_busiest_segment_of_one_hash_is_told_and_ends_the_evaluation() -> None:
    found = decided(one_hash(), {0: load(50), 1: load(150)}, streams(3))
    assert split(found) == (1, Reason.CONSUMER_COUNT)
    found = decided(one_hash(), {0: load(160), 1: load(150)}, streams(3))
    quiet(found, Blocked.UNSPLITTABLE)
    within = decided(one_hash(), {0: load(160), 1: load(1)}, streams(3), last=ago(split=1))
    assert "a split for the consumers waits" in quiet(within)


def test_a_split_for_consumers_says_the_figures() -> None:
    found = decided(segments(2), rates_in(50, 45), streams(3))
    assert isinstance(found, Split)
    assert found.why == (
        "3 consumers have 2 segments, and segment 0, the busiest, takes 50 msg/s, which is 30 or "
        "more"
    )


# --- more buckets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "buckets", "consumers", "expected"),
    [
        (1, 4, 4, None),  # what is there absorbs them
        (1, 4, 8, 8),
        (1, 4, 9, 16),
        (2, 1, 9, 8),  # five each, at least
        (3, 1, 6, 2),
        (3, 1, 7, 4),
    ],
)
def test_each_segment_gets_the_power_of_two_that_gives_every_consumer_a_bucket(
    count: int, buckets: int, consumers: int, expected: int | None
) -> None:
    found = decided(segments(count, buckets), {}, streams(consumers))
    if expected is None:
        assert f"can share {count * buckets} entry buckets" in quiet(found)
    else:
        ids = tuple(range(count))
        assert rebucket(found) == (ids, expected, Reason.BELOW_SPLIT_RATE_FLOOR)


@pytest.mark.parametrize(
    ("ceiling", "consumers", "expected"),
    [
        (16, 17, 16),  # as many as can be
        (12, 9, 12),  # a ceiling needs not be a power of two
        (4, 5, None),
        (5, 5, 5),
    ],
)
def test_buckets_are_raised_to_the_ceiling_and_no_further(
    ceiling: int, consumers: int, expected: int | None
) -> None:
    policy_ = policy(max_entry_buckets_per_segment=ceiling)
    found = decided(segments(1, buckets=4), {}, streams(consumers), policy_)
    if expected is None:
        assert f"{consumers} consumers would need more than {ceiling} entry buckets" in quiet(
            found, Blocked.MAX_ENTRY_BUCKETS
        )
    else:
        assert rebucket(found)[:2] == ((0,), expected)


@pytest.mark.parametrize(("seconds", "acts"), [(-5, False), (19.999, False), (20, True)])
def test_more_buckets_wait_for_the_rebucket_cooldown_alone(seconds: float, acts: bool) -> None:
    found = decided(segments(1), {}, streams(2), last=ago(rebucket=seconds))
    assert isinstance(found, Rebucket) is acts
    if not acts:
        assert "wait for the rebucket cooldown" in quiet(found)
    known = decided(segments(1), rates_in(5), streams(2), last=ago(split=0, merge=0))
    assert isinstance(known, Rebucket)


def test_consumers_wait_for_the_load_of_segments_that_were_just_made() -> None:
    found = decided(segments(2), rates_in(500), streams(9), last=ago(split=0))
    assert "waits for the split cooldown" in quiet(found)
    unknown = rates_in(5)  # of the first segment alone
    found = decided(segments(2), unknown, streams(9), last=ago(split=0))
    assert "not known yet" in quiet(found)
    assert isinstance(decided(segments(2), unknown, streams(9), last=ago(split=3_600)), Rebucket)


def test_more_buckets_say_the_figures_and_why_not_a_segment() -> None:
    found = decided(segments(2), rates_in(29, 5), streams(3))
    assert isinstance(found, Rebucket)
    assert found.why == (
        "3 consumers have 2 entry buckets, and no segment takes 30 msg/s, which would justify a "
        "split"
    )
    found = decided(segments(2), rates_in(50, 5), streams(3), policy(max_segments=2))
    assert isinstance(found, Rebucket)
    assert (
        found.why == "3 consumers have 2 entry buckets, and there are 2 segments, the most allowed"
    )


# --- buckets that nobody needs any more -----------------------------------------------------------


def lowered(found: Decision, expected: int | None) -> None:
    """Segment 0 gets so many; or none has any to spare."""
    if expected is None:
        assert "no segment has entry buckets to spare" in quiet(found)
    else:
        assert rebucket(found) == ((0,), expected, Reason.BUCKET_SURPLUS)


def test_what_nobody_asks_for_is_lowered_to_a_budget_of_one_bucket() -> None:
    found = decided(segments(1, 4), policy=policy(entry_bucket_budget=1))
    assert rebucket(found) == ((0,), 1, Reason.BUCKET_SURPLUS)


def test_need_and_budget_are_shared_by_the_segments_and_each_keeps_one_bucket() -> None:
    keep = policy(min_segments=2)
    assert rebucket(decided(segments(2, 8), {}, streams(3), keep))[:2] == ((0, 1), 4)
    assert rebucket(decided(segments(2, 8), {}, streams(2), keep))[:2] == ((0, 1), 2)
    assert rebucket(decided(segments(5, 8), {}, {}))[:2] == (tuple(range(5)), 1)


@pytest.mark.parametrize(("consumers", "expected"), [(9, None), (8, 16), (2, 16)])
def test_where_twice_the_need_is_over_the_ceiling_nothing_is_lowered_and_the_budget_is_bounded(
    consumers: int, expected: int | None
) -> None:
    ceiling = policy(max_entry_buckets_per_segment=16, entry_bucket_budget=64)
    lowered(decided(segments(1, 512), {}, streams(consumers), ceiling), expected)


def test_only_segments_with_more_are_lowered_lowest_id_first() -> None:
    topic = ring((2, 8), (1, 2), (0, 4))
    assert rebucket(decided(topic, {}, streams(3))) == ((0, 2), 2, Reason.BUCKET_SURPLUS)


@pytest.mark.parametrize(("consumers", "expected"), [(3, None), (2, 2)])
def test_where_others_have_less_than_their_share_nothing_is_lowered_below_twice_the_need(
    consumers: int, expected: int | None
) -> None:
    lowered(decided(ring((0, 6), (1, 1), (2, 1)), {}, streams(consumers)), expected)


@pytest.mark.parametrize("what", ["split", "merge", "rebucket", "consumers"])
@pytest.mark.parametrize(("seconds", "acts"), [(-5, False), (49.999, False), (50, True)])
def test_buckets_are_lowered_only_when_nothing_has_changed_for_the_window(
    what: str, seconds: float, acts: bool
) -> None:
    last = LastActions() if what == "consumers" else ago(**{what: seconds})
    since_ms = NOW_MS - round(seconds * 1000) if what == "consumers" else 0
    found = decided(segments(1, 8), {}, streams(1, since_ms=since_ms), POLICY, last)
    acts_or_says(found, Rebucket, acts, "kept until nothing changes for a while")


@pytest.mark.parametrize(("seconds", "acts"), [(19.999, False), (20, True)])
def test_fewer_buckets_too_wait_for_the_rebucket_cooldown(seconds: float, acts: bool) -> None:
    hasty = policy(rebucket_down_window_seconds=5)
    found = decided(segments(1, 8), {}, streams(1), hasty, ago(rebucket=seconds))
    acts_or_says(found, Rebucket, acts, "wait for the rebucket cooldown")


def test_the_subscription_that_changed_last_counts() -> None:
    late = {"late": Demand(1, NOW_MS - 1)}
    for demand in ({**streams(1), **late}, {**late, **streams(1)}):
        assert "kept until nothing changes" in quiet(decided(segments(1, 8), {}, demand))


def test_a_surplus_says_the_figures() -> None:
    found = decided(segments(1, 16), {}, streams(2))
    assert isinstance(found, Rebucket)
    assert found.why == (
        "2 consumers have 16 entry buckets, more than twice as many as they need, and nothing has "
        "changed for 50 s"
    )
