"""What is decided for buckets that nobody needs any more (PIP-486, "lower lazily")."""

from __future__ import annotations

import pytest

from anabranch.core.autoscale.decide import Demand, LastActions
from anabranch.core.autoscale.decisions import Decision, Reason, Rebucket
from support.autoscale import (
    NOW_MS,
    POLICY,
    acts_or_says,
    ago,
    decided,
    policy,
    quiet,
    rebucket,
    ring,
    segments,
    streams,
)


def lowered(found: Decision, expected: int | None) -> None:
    """Segment 0 gets so many; or none has any to spare."""
    if expected is None:
        assert "no segment has entry buckets to spare" in quiet(found)
    else:
        assert rebucket(found) == ((0,), expected, Reason.BUCKET_SURPLUS)


def test_what_nobody_asks_for_is_lowered_to_a_budget_of_one_bucket() -> None:
    found = decided(segments(1, 4), policy=policy(entry_bucket_budget=1))
    assert rebucket(found) == ((0,), 1, Reason.BUCKET_SURPLUS)


@pytest.mark.parametrize(
    ("buckets", "consumers", "expected"),
    [
        (4, 0, None),  # the topic's budget
        (8, 0, 4),
        (16, 4, 8),
        (16, 5, None),  # twice the need is 10, and so 16
    ],
)
def test_buckets_are_lowered_to_twice_the_need_or_the_budget(
    buckets: int, consumers: int, expected: int | None
) -> None:
    lowered(decided(segments(1, buckets), {}, streams(consumers)), expected)


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
