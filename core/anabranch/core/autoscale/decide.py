"""The decision to split, merge or rebucket a topic's segments: one pure function.

PIP-483 ("The decision"), with buckets in place of segments where the load does not justify segments
(PIP-486, "Two scaling actions"). Splits are fast, merges are lazy, buckets are only ever raised.
The passes are consumers, load and merge, in this order; the first pass that has something to do
ends the evaluation. Nothing depends on the order of the arguments' items: ties go to the lowest
segment id.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import add, gt, truediv
from typing import Final

import msgspec

from anabranch.core.autoscale.decisions import (
    Blocked,
    Decision,
    Merge,
    NoAction,
    Reason,
    Rebucket,
    Split,
)
from anabranch.core.autoscale.load import NO_RATES, Rates, SegmentLoad, is_cold, rate_in_words
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo


class Demand(msgspec.Struct, frozen=True):
    """The consumers of one stream or checkpoint subscription; those of a queue never count.

    `consumers`: sessions, those in their grace included. `away`: the number of sessions that wait
    for an absent consumer. Auto-scaling adds nothing for these sessions, but takes nothing away
    either until their grace is over.
    """

    consumers: int
    away: int = 0


class LastActions(msgspec.Struct, frozen=True):
    """The time of each action's last run on the topic, automatic or by hand, in the log's ms; 0:
    never.
    """

    split_ms: int = 0
    merge_ms: int = 0
    rebucket_ms: int = 0


_HOT_SPOT_SHARE: Final = 0.1  # the other half's least share of a segment's load
_USELESS_MAX: Final = 6  # splits in a row that divided nothing: 64 times the cooldown
_METRICS: Final = (
    Reason.MSG_RATE_IN,
    Reason.BYTES_RATE_IN,
    Reason.MSG_RATE_OUT,
    Reason.BYTES_RATE_OUT,
)


def decide(
    layout: SegmentLayout,
    load: Mapping[int, SegmentLoad],
    demand: Mapping[str, Demand],
    policy: AutoScalePolicy,
    now_ms: int,
    last: LastActions,
) -> Decision:
    """Decides what to do now; `load` by segment id, `demand` by subscription, `now_ms` of the log.

    The policy must be without fault (`policy.fault_of`).
    """
    if not policy.enabled:
        return NoAction(None, "auto-scaling is switched off")
    facts = _Facts(layout, load, demand, policy, now_ms, last)
    blocked: Blocked | None = None
    reasons: list[str] = []
    for each in (_for_consumers, _for_load, _merge):
        found = each(facts)
        if not isinstance(found, NoAction):
            return found
        if found.blocked is Blocked.UNSPLITTABLE:
            return found
        blocked = blocked or found.blocked
        reasons.append(found.why)
    return NoAction(blocked, "; ".join(reasons))


class _Facts:
    """Facts that several passes ask for, computed once."""

    def __init__(
        self,
        layout: SegmentLayout,
        load: Mapping[int, SegmentLoad],
        demand: Mapping[str, Demand],
        policy: AutoScalePolicy,
        now_ms: int,
        last: LastActions,
    ) -> None:
        self.layout = layout
        self.load = load
        self.policy = policy
        self.now_ms = now_ms
        self.last = last
        self.split_thresholds = policy.split_thresholds
        self.merge_thresholds = policy.merge_thresholds
        self.active = layout.active
        ids = (part.segment_id for part in self.active)
        self._rates = {each: load[each].rates if each in load else NO_RATES for each in ids}
        self.count = len(self.active)
        self.at_cap = self.count >= policy.max_segments
        self.capacity = sum(part.buckets for part in self.active)
        self.asked = max((each.consumers for each in demand.values()), default=0)
        self.there = max((each.consumers - each.away for each in demand.values()), default=0)

    def rates(self, part: SegmentInfo) -> Rates:
        return self._rates[part.segment_id]

    def is_resting(self, last_ms: int, cooldown_s: float) -> bool:
        """Tells whether a cooldown is on; a last time in the future counts as one."""
        return bool(last_ms) and self.now_ms - last_ms < cooldown_s * 1000

    @cached_property
    def busiest(self) -> SegmentInfo:
        """The active segment that takes most messages; among equals, the one with the lowest id."""
        return max(self.active, key=lambda part: (self.rates(part)[0], -part.segment_id))

    @cached_property
    def highest_rate(self) -> float:
        return self.rates(self.busiest)[0]

    @cached_property
    def _ring(self) -> tuple[list[int], list[float]]:
        """Returns where each active segment starts, and all its rates in sum."""
        return [part.start for part in self.active], [sum(self.rates(part)) for part in self.active]

    def load_beside(self, place: int, within: SegmentInfo) -> float:
        """Adds up all rates of the active segments in that range of the ring, without that one."""
        starts, sums = self._ring
        first, end = bisect_right(starts, within.start) - 1, bisect_right(starts, within.end)
        return sum(sums[place + 1 : end], sum(sums[first:place]))

    @cached_property
    def useless_to_rest(self) -> int:
        """Returns how many useless splits make the next one wait; beyond the maximum: none."""
        last_ms, cooldown_s = self.last.split_ms, self.policy.split_cooldown_seconds
        counts = range(_USELESS_MAX + 1)
        resting = (each for each in counts if self.is_resting(last_ms, cooldown_s * 2**each))
        return next(resting, _USELESS_MAX + 1)

    @property
    def has_unknown_load(self) -> bool:
        """Tells whether a segment has no load record; after a while only one without messages has
        none.
        """
        return any(part.segment_id not in self.load for part in self.active)

    @property
    def is_split_resting(self) -> bool:
        return self.is_resting(self.last.split_ms, self.policy.split_cooldown_seconds)


# --- more consumers than segments ----------------------------------------------------------------


def _for_consumers(facts: _Facts) -> Decision:
    policy = facts.policy
    if facts.there <= facts.count:
        return NoAction(
            None, f"{_count(facts.there, 'consumer')} for {_count(facts.count, 'segment')}"
        )
    busiest = facts.busiest
    rate = facts.rates(busiest)[0]
    floor = policy.split_vs_rebucket_min_msg_rate_in_threshold
    if not facts.at_cap and rate < floor and facts.is_split_resting and facts.has_unknown_load:
        return NoAction(None, "the load of the segments of the last split is not known yet")
    if facts.at_cap or rate < floor:
        return _more_buckets(facts)
    if facts.is_split_resting:
        return NoAction(None, "a split for the consumers waits for the split cooldown")
    segment_id = busiest.segment_id
    if busiest.size == 1:
        return _unsplittable(segment_id)
    why = (
        f"{facts.there} consumers have {facts.count} segments, and segment {segment_id}, the "
        f"busiest, takes {rate_in_words(rate)} msg/s, which is {floor:g} or more"
    )
    return Split(segment_id, Reason.CONSUMER_COUNT, why)


def _more_buckets(facts: _Facts) -> Decision:
    """Decides on more buckets, where the cap or the load allows no other segment."""
    policy = facts.policy
    if facts.there <= facts.capacity:
        return NoAction(None, f"{facts.there} consumers can share {facts.capacity} entry buckets")
    if facts.is_resting(facts.last.rebucket_ms, policy.rebucket_cooldown_seconds):
        return NoAction(None, "more entry buckets wait for the rebucket cooldown")
    each = -(-facts.there // facts.count)
    buckets = min(1 << (each - 1).bit_length(), policy.max_entry_buckets_per_segment)
    ids = tuple(sorted(part.segment_id for part in facts.active if part.buckets < buckets))
    if not ids:
        why = f"{facts.there} consumers would need more than {buckets} entry buckets a segment"
        return NoAction(Blocked.MAX_ENTRY_BUCKETS, why)
    if facts.at_cap:
        reason, cause = (
            Reason.AT_MAX_SEGMENTS,
            f"there are {facts.count} segments, the most allowed",
        )
    else:
        floor = policy.split_vs_rebucket_min_msg_rate_in_threshold
        reason = Reason.BELOW_SPLIT_RATE_FLOOR
        cause = f"no segment takes {floor:g} msg/s, which would justify a split"
    why = f"{facts.there} consumers have {facts.capacity} entry buckets, and {cause}"
    return Rebucket(ids, buckets, reason, why)


def _unsplittable(segment_id: int) -> NoAction:
    why = f"segment {segment_id} should be split, but its range is one hash"
    return NoAction(Blocked.UNSPLITTABLE, why)


# --- too much load on a segment ------------------------------------------------------------------


def _for_load(facts: _Facts) -> Decision:
    thresholds = facts.split_thresholds
    over = []
    for place, part in enumerate(facts.active):
        score = max(map(truediv, facts.rates(part), thresholds))
        if score > 1.0:  # only what is beyond a threshold counts
            over.append((-score, part.segment_id, place))
    if not over:
        return NoAction(None, "no segment is over a split threshold")
    over.sort()
    worst = facts.active[over[0][2]]
    why = _overload(facts, worst)[1]
    if facts.at_cap:
        cap = facts.policy.max_segments
        return NoAction(Blocked.MAX_SEGMENTS, f"{why}, but there are {cap} segments already")
    if facts.is_split_resting:
        return NoAction(None, f"{why}, but the split cooldown is on")
    if worst.size == 1:
        return _unsplittable(worst.segment_id)
    for _, _, place in over:
        part = facts.active[place]
        if part.size > 1 and not _is_hot_spot_resting(facts, place):
            reason, why = _overload(facts, part)
            return Split(part.segment_id, reason, why)
    return NoAction(None, f"{why}, but the splits before left nearly all of it on one side")


def _overload(facts: _Facts, part: SegmentInfo) -> tuple[Reason, str]:
    """The metric that is furthest over its threshold, and that in words."""
    rates, thresholds = facts.rates(part), facts.split_thresholds
    ratios = list(map(truediv, rates, thresholds))
    which = ratios.index(max(ratios))
    metric = _METRICS[which]
    why = (
        f"{metric.value} of segment {part.segment_id} is {rate_in_words(rates[which])}/s, over "
        f"{thresholds[which]:.15g}"
    )
    return metric, why


def _is_hot_spot_resting(facts: _Facts, place: int) -> bool:
    """Tells whether one more split of that segment must wait, because earlier splits did not divide
    its load.

    A single hot key goes with one half each time. Every such split in a row doubles the cooldown.
    Thus a hot key does not cost a segment a minute, and several warm ones are parted in the end.
    """
    part, needed = facts.active[place], facts.useless_to_rest
    if needed > _USELESS_MAX:
        return False
    enough = sum(facts.rates(part)) * _HOT_SPOT_SHARE
    segments = facts.layout.segments
    useless, at, size = 0, part, part.size
    while useless < needed and len(at.parent_ids) == 1:
        at = segments[at.parent_ids[0]]
        if at.size < size:
            break  # merged, of others that are pruned
        if at.size > size:  # a rebucket's predecessor says nothing
            if facts.load_beside(place, at) > enough:
                break
            useless += 1
            size = at.size
    return useless >= needed


# --- two neighbours without load -----------------------------------------------------------------


def _merge(facts: _Facts) -> Decision:
    policy = facts.policy
    if facts.count <= policy.min_segments:
        return NoAction(None, f"{_count(facts.count, 'segment')} must be there at least")
    if facts.is_resting(facts.last.merge_ms, policy.merge_cooldown_seconds):
        return NoAction(None, "the merge cooldown is on")
    blocked: Blocked | None = None
    is_left_out = False
    depth, depth_max = facts.layout.merge_depth, policy.max_dag_depth
    for _, _, place in sorted(_cold_pairs(facts)):
        left, right = facts.active[place : place + 2]
        if depth(left.segment_id) >= depth_max or depth(right.segment_id) >= depth_max:
            blocked = blocked or Blocked.MAX_DAG_DEPTH
        elif _cuts_parallelism(facts, left, right):
            blocked = blocked or Blocked.MAX_ENTRY_BUCKETS
        elif _would_be_split_again(facts, left, right):
            is_left_out = True
        else:
            why = (
                f"segments {left.segment_id} and {right.segment_id} have been below every merge "
                f"threshold for {policy.merge_window_seconds:g} s, the coldest such pair"
            )
            return Merge(left.segment_id, right.segment_id, Reason.COLD, why)
    return NoAction(blocked, _no_merge(blocked, is_left_out=is_left_out))


def _no_merge(blocked: Blocked | None, *, is_left_out: bool) -> str:
    match blocked:
        case Blocked.MAX_DAG_DEPTH:
            return "cold neighbours have been merged too often before"
        case Blocked.MAX_ENTRY_BUCKETS:
            return "a merge of cold neighbours would leave consumers without entry buckets"
        case _ if is_left_out:
            return "cold neighbours would be split again at once if they were merged"
        case _:
            return "no two neighbours are cold for long enough"


def _cold_pairs(facts: _Facts) -> Iterator[tuple[float, int, int]]:
    """Yields each cold pair of neighbours: the sum of its rates, its lowest id, its place."""
    before: float | None = None
    for place, part in enumerate(facts.active):
        own = sum(facts.rates(part)) if _is_cold(facts, part) else None
        if own is not None and before is not None:
            yield before + own, min(facts.active[place - 1].segment_id, part.segment_id), place - 1
        before = own


def _is_cold(facts: _Facts, part: SegmentInfo) -> bool:
    found = facts.load.get(part.segment_id)
    if found is None or facts.now_ms - found.modified_ms < facts.policy.merge_window_seconds * 1000:
        return False
    return is_cold(facts.rates(part), facts.merge_thresholds)


def _cuts_parallelism(facts: _Facts, left: SegmentInfo, right: SegmentInfo) -> bool:
    lost = left.buckets + right.buckets - facts.policy.max_entry_buckets_per_segment
    return facts.capacity - lost < min(facts.asked, facts.capacity)


def _would_be_split_again(facts: _Facts, left: SegmentInfo, right: SegmentInfo) -> bool:
    """Tells whether the consumers' or the load's pass would undo the merge at the next
    evaluation.
    """
    rates, other = facts.rates(left), facts.rates(right)
    if facts.asked >= facts.count:
        # The pair takes no less than either of it, so the busiest of all need not be another.
        busiest = max(rates[0] + other[0], facts.highest_rate)
        if busiest >= facts.policy.split_vs_rebucket_min_msg_rate_in_threshold:
            return True
    return any(map(gt, map(add, rates, other), facts.split_thresholds))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
