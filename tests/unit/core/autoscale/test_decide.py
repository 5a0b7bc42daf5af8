"""What is decided for consumers: splits, or more or fewer buckets (PIP-483, pass 1a; PIP-486)."""

from __future__ import annotations

import pytest

from anabranch.core.autoscale.decide import Demand
from anabranch.core.autoscale.decisions import Blocked, Merge, Reason, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import RING16_END, new_segment
from support.autoscale import (
    ago,
    decided,
    load,
    one_hash,
    policy,
    quiet,
    rates_in,
    rebucket,
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
        "1 segment must be there at least"
    )


def test_consumers_go_before_load_and_that_before_a_merge() -> None:
    cold_and_hot = {**rates_in(40, 0, 0), 3: load(bytes_in=1_500)}
    topic = segments(4)
    assert split(decided(topic, cold_and_hot, streams(5))) == (0, Reason.CONSUMER_COUNT)
    assert split(decided(topic, cold_and_hot, streams(4))) == (3, Reason.BYTES_RATE_IN)
    assert isinstance(decided(topic, rates_in(40, 0, 0, 0), streams(2)), Merge)
    assert isinstance(decided(segments(2, buckets=8), rates_in(0, 0)), Merge)


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
    demand = {"s": Demand(5, away=3)}
    for two in (demand, streams(2), streams(2, 2)):
        assert "2 consumers for 2 segments" in quiet(decided(segments(2), busy, two))
    assert isinstance(decided(segments(2), busy, {"s": Demand(5, away=2)}), Split)
    narrow = policy(max_entry_buckets_per_segment=1)
    away = {"s": Demand(2, away=2)}
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
