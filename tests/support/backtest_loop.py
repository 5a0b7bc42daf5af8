"""The back-test as it is described, step by step: no fast path, nothing shared with it but rules.

What a load record says, and when it is written, is up to a node's own meter, which is told of each
message. Loads are given by step, metric and piece of the ring; pieces lie evenly on their hashes.
In a step a segment takes a whole number of messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from anabranch.broker.load.reporter import LoadSettings
from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.decisions import Decision, Merge, NoAction, Rebucket, Split, describe
from anabranch.core.autoscale.load import Rates, SegmentLoad
from anabranch.core.autoscale.meter import SegmentMeter
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.segment import SegmentInfo
from anabranch.spark_replay.backtest.model import Rules

STEP_MS = 60_000
BEGIN_MS = 1_700_000_000_000
_STEP_S = STEP_MS / 1000
_CHANGE = LoadSettings().threshold


class Told(msgspec.Struct):
    """What there is to compare."""

    log: list[tuple[int, str, str]] = []
    counts: list[int] = []  # of segments, by step
    over_s: float = 0.0
    flaps: int = 0
    evaluations: int = 0
    blocked_s: Counter[str] = msgspec.field(default_factory=Counter)
    totals: list[Rates] = []  # of all segments, by step


def taken(step: Sequence[Sequence[float]], edges: Sequence[int], part: SegmentInfo) -> Rates:
    """What a segment takes in a step."""
    found = []
    for pieces in step:
        rate = 0.0
        for low, high, load in zip(edges, edges[1:], pieces, strict=False):
            shared = min(high, part.end + 1) - max(low, part.start)
            rate += load * max(0, shared) / (high - low)
        found.append(rate)
    return (found[0], found[1], found[2], found[3])


class Metered:
    """A segment's traffic, as its node learns of it once a step."""

    def __init__(self) -> None:
        self._meter = SegmentMeter(_STEP_S, None, 0.0)
        self._now_s = 0.0
        self._total = 0

    def step(self, rates: Rates, policy: AutoScalePolicy) -> Rates | None:
        """What is written at its end, if anything is."""
        came, size_in, went, size_out = (int(each * _STEP_S) for each in rates)
        assert (came / _STEP_S, size_in / _STEP_S) == rates[:2], "part of a message came"
        assert (went / _STEP_S, size_out / _STEP_S) == rates[2:], "part of a message went"
        self._now_s += _STEP_S
        self._total += came
        self._meter.written(came, size_in)
        self._meter.read(went, size_out)
        born_s = 0.0 if self._now_s == _STEP_S else None
        self._meter.sample(self._now_s, self._total, born_s)
        news = self._meter.news(_CHANGE, policy.negligible, policy.merge_thresholds)
        return news.rates if news is not None else None


class Loop:
    """One topic under one policy."""

    def __init__(self, policy: AutoScalePolicy, rules: Rules) -> None:
        self.policy, self.rules = policy, rules
        self.most = policy.max_entry_buckets_per_segment
        budget = policy.entry_bucket_budget
        self.layout = SegmentLayout.initial(rules.segments, budget, self.most)
        self.load: dict[int, SegmentLoad] = {}
        self.meters: dict[int, Metered] = {}
        self.demand: dict[str, Demand] = {}
        self.last = LastActions()
        self.under_way: tuple[int, Decision] | None = None
        self.told = Told()
        self.opposite: dict[tuple[str, int, int], int] = {}

    def run(
        self,
        steps: Sequence[Sequence[Sequence[float]]],
        edges: Sequence[int],
        consumers: Sequence[int],
    ) -> Told:
        before = 0
        for number, step in enumerate(steps):
            now_ms = BEGIN_MS + (number + 1) * STEP_MS
            active = self.layout.active
            rates = {part.segment_id: taken(step, edges, part) for part in active}
            self._count(rates)
            for segment_id, each in rates.items():
                news = self.meters.setdefault(segment_id, Metered()).step(each, self.policy)
                if news is not None:
                    self.load[segment_id] = SegmentLoad(*news, now_ms)
            if consumers[number] != before:
                before = consumers[number]
                self.demand = {"s": Demand(before, now_ms)}
            self._turn(number, now_ms)
        return self.told

    def _count(self, rates: dict[int, Rates]) -> None:
        self.told.counts.append(len(rates))
        limits = self.policy.split_thresholds
        if any(
            rate > most for each in rates.values() for rate, most in zip(each, limits, strict=True)
        ):
            self.told.over_s += STEP_MS / 1000
        sums = [sum(each[metric] for each in rates.values()) for metric in range(4)]
        self.told.totals.append((sums[0], sums[1], sums[2], sums[3]))

    def _turn(self, number: int, now_ms: int) -> None:
        if self.under_way is not None and self.under_way[0] <= number:
            decision = self.under_way[1]
            self.under_way = None
            self._do(decision, now_ms)
        self._prune(now_ms)
        if self.under_way is not None:
            return
        self.told.evaluations += 1
        found = decide(self.layout, self.load, self.demand, self.policy, now_ms, self.last)
        if isinstance(found, NoAction):
            if found.blocked is not None:
                self.told.blocked_s[found.blocked.value] += STEP_MS // 1000
            return
        steps = -(-self.rules.operation_s * 1000 // STEP_MS)
        if steps:
            self.under_way = (number + int(steps), found)
            self.told.evaluations -= 1
        else:
            self._do(found, now_ms)

    def _prune(self, now_ms: int) -> None:
        for part in list(self.layout.segments.values()):
            kept_s = max(self.rules.retention_s, self.rules.sealed_retention_s)
            old = part.sealed_at_ms <= now_ms - kept_s * 1000
            if not part.is_active and old:
                self.layout = self.layout.prune_segment(part.segment_id)

    def _do(self, decision: Decision, now_ms: int) -> None:
        last = self.last
        match decision:
            case Split(segment_id, reason):
                part = self.layout.segments[segment_id]
                self._flap("merge", "split", part.start, part.end, now_ms)
                self.layout = self.layout.split_segment(segment_id, now_ms)
                self.last = LastActions(now_ms, last.merge_ms, last.rebucket_ms)
            case Merge(first_id, second_id, reason):
                parts = [self.layout.segments[each] for each in (first_id, second_id)]
                start, end = min(p.start for p in parts), max(p.end for p in parts)
                self._flap("split", "merge", start, end, now_ms)
                children = self.layout.merge_children(first_id, second_id, self.most)
                self.layout = self.layout.replaced(children[0].parent_ids, children, {}, now_ms)
                self.last = LastActions(last.split_ms, now_ms, last.rebucket_ms)
            case Rebucket(segment_ids, buckets, reason):
                for segment_id in segment_ids:
                    self.layout = self.layout.rebucket_segment(segment_id, buckets, now_ms)
                self.last = LastActions(last.split_ms, last.merge_ms, now_ms)
            case NoAction():
                raise AssertionError
        self.told.log.append((now_ms, describe(decision), reason.value))

    def _flap(self, other: str, own: str, start: int, end: int, now_ms: int) -> None:
        self.opposite[own, start, end] = now_ms
        since_ms = self.opposite.get((other, start, end))
        if since_ms is not None and now_ms - since_ms <= self.rules.flap_s * 1000:
            self.told.flaps += 1
