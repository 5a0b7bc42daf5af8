"""Layouts, loads and consumers for tests of auto-scaling, in a word each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.decisions import Blocked, Decision, NoAction, Reason, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import RING16_END, new_segment

NOW_MS = 1_000_000_000
LONG_AGO_MS = NOW_MS - 100_000_000
NEVER = LastActions()

# Round figures, each of its own, so that a test shows which of them was looked at.
POLICY = AutoScalePolicy(
    max_segments=8,
    min_segments=1,
    max_dag_depth=3,
    split_cooldown_seconds=10,
    rebucket_cooldown_seconds=20,
    merge_cooldown_seconds=30,
    merge_window_seconds=40,
    split_msg_rate_in_threshold=100,
    split_bytes_rate_in_threshold=1_000,
    split_msg_rate_out_threshold=200,
    split_bytes_rate_out_threshold=2_000,
    merge_msg_rate_in_threshold=10,
    merge_bytes_rate_in_threshold=100,
    merge_msg_rate_out_threshold=20,
    merge_bytes_rate_out_threshold=200,
    split_vs_rebucket_min_msg_rate_in_threshold=30,
    max_entry_buckets_per_segment=16,
    entry_bucket_budget=4,
)


def policy(**changes: object) -> AutoScalePolicy:
    """The policy of these tests, but for this."""
    return msgspec.structs.replace(POLICY, **changes)


def segments(count: int, buckets: int = 1) -> SegmentLayout:
    """So many segments of so many buckets each, with the ids from 0 on in ring order."""
    return SegmentLayout.initial(count, count * buckets)


def load(
    msg_in: float = 0.0,
    bytes_in: float = 0.0,
    msg_out: float = 0.0,
    bytes_out: float = 0.0,
    since_ms: int = LONG_AGO_MS,
) -> SegmentLoad:
    return SegmentLoad(msg_in, bytes_in, msg_out, bytes_out, since_ms)


def rates_in(*rates: float) -> dict[int, SegmentLoad]:
    """Messages a second into the segments 0, 1 and so on, for long."""
    return {segment_id: load(rate) for segment_id, rate in enumerate(rates)}


def streams(*counts: int) -> dict[str, Demand]:
    """A stream subscription for each number of consumers."""
    return {f"stream{n}": Demand(each) for n, each in enumerate(counts)}


def decided(
    layout: SegmentLayout,
    load: Mapping[int, SegmentLoad] | None = None,
    demand: Mapping[str, Demand] | None = None,
    policy: AutoScalePolicy = POLICY,
    last: LastActions = NEVER,
) -> Decision:
    return decide(layout, load or {}, demand or {}, policy, NOW_MS, last)


def ago(**seconds: float) -> LastActions:
    """Last actions so many seconds ago: `ago(split=3)`."""
    return LastActions(**{f"{name}_ms": NOW_MS - round(s * 1000) for name, s in seconds.items()})


def one_hash() -> SegmentLayout:
    """Segment 0 of one hash, segment 1 of all others."""
    return SegmentLayout(0, 2, [new_segment(0, 0, 0, 1), new_segment(1, 1, RING16_END, 1)])


def quiet(decision: Decision, blocked: Blocked | None = None) -> str:
    """Why nothing is to be done."""
    assert isinstance(decision, NoAction), decision
    assert decision.blocked is blocked, decision
    return decision.why


def acts_or_says(
    found: Decision, kind: type[Decision], acts: bool, why: str, blocked: Blocked | None = None
) -> None:
    """It acts so, or does nothing and says why."""
    assert isinstance(found, kind) is acts
    assert acts or why in quiet(found, blocked)


def split(decision: Decision) -> tuple[int, Reason]:
    assert isinstance(decision, Split), decision
    return decision.segment_id, decision.reason


def rebucket(decision: Decision) -> tuple[tuple[int, ...], int, Reason]:
    assert isinstance(decision, Rebucket), decision
    return decision.segment_ids, decision.buckets, decision.reason


def ring(*ids_and_buckets: tuple[int, int]) -> SegmentLayout:
    """Segments of equal size, in this order on the ring."""
    size = (RING16_END + 1) // len(ids_and_buckets)
    parts = [
        new_segment(each, place * size, (place + 1) * size - 1, buckets)
        for place, (each, buckets) in enumerate(ids_and_buckets)
    ]
    last = msgspec.structs.replace(parts[-1], end=RING16_END)
    return SegmentLayout(0, len(parts), [*parts[:-1], last])
