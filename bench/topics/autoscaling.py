"""One evaluation of auto-scaling of a topic with 64 segments: the slowest kind of input counts.

Of a topic with a long past the first one of a controller is a figure of its own: later ones go on
from what it has found.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import msgspec

from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.layout import SegmentLayout
from bench.figure import Measured, spread
from bench.place import Place

_SEGMENTS = 64
_GOAL_US = 200.0
_CALLS = 300
_NOW_MS = 2_000_000_000_000
_LONG_AGO_MS = _NOW_MS - 86_400_000
_SUBSCRIPTIONS = 10
_POLICY = AutoScalePolicy()
_ROOMY = msgspec.structs.replace(_POLICY, max_segments=2 * _SEGMENTS)
_FLOOR_WHAT = "reading the rates of 64 segments and comparing each with a threshold, in Python"

Load = Mapping[int, SegmentLoad]


class Input(msgspec.Struct, frozen=True):
    """Everything that `decide` is given but the time. `renewed`: each call has another layout.

    `before`: the one before it, when the controller that looks has looked at that.
    """

    layout: SegmentLayout
    load: Load
    consumers: int = 0
    policy: AutoScalePolicy = _POLICY
    last: LastActions = LastActions()
    renewed: bool = False
    before: SegmentLayout | None = None

    def took_us(self) -> float:
        """Microseconds of one call, and of taking over what is known of the layout before."""
        layout, load, policy, last = self.layout, self.load, self.policy, self.last
        if self.renewed:
            layout = SegmentLayout(layout.epoch, layout.next_segment_id, layout.segments.values())
        demand = {f"stream-{number}": Demand(self.consumers) for number in range(_SUBSCRIPTIONS)}
        if self.before is not None:
            decide(self.before, load, demand, policy, _NOW_MS, last)
        began = time.perf_counter_ns()
        if self.before is not None:
            layout = layout.following(self.before)
        decide(layout, load, demand, policy, _NOW_MS, last)
        return (time.perf_counter_ns() - began) / 1000


def worst(place: Place) -> Measured:
    """Of each kind of input the median; of these the highest."""
    return _slowest(_kinds(), place)


def first(place: Place) -> Measured:
    """The first evaluation of a controller that is made anew for a topic with a long past."""
    deep = _merged_often()
    return _slowest({"cold, merged too often": Input(deep, _loads(deep, 10), renewed=True)}, place)


def _slowest(kinds: dict[str, Input], place: Place) -> Measured:
    took: dict[str, list[float]] = {name: [] for name in kinds}
    floor = []
    for _ in range(_CALLS // 3 if place.quick else _CALLS):
        for name, given in kinds.items():  # in turn, so that a disturbance hits all alike
            took[name].append(given.took_us())
        floor.append(_floor_us(next(iter(kinds.values()))))
    value = max(map(statistics.median, took.values()))
    return Measured(
        value,
        "us",
        value,
        _GOAL_US,
        floor=statistics.median(floor),
        floor_what=_FLOOR_WHAT,
        details={
            "segments": _SEGMENTS,
            "sealed segments": {
                name: len(given.layout.segments) - _SEGMENTS for name, given in kinds.items()
            },
        }
        | {name: spread(times) for name, times in took.items()},
    )


def _floor_us(given: Input) -> float:
    began = time.perf_counter_ns()
    for part in given.layout.active:
        for rate in given.load[part.segment_id].rates:
            _ = rate > 1.0
    return (time.perf_counter_ns() - began) / 1000


def _kinds() -> dict[str, Input]:
    plain, deep = _split_up(), _merged_often()
    after = deep.rebucket_segment(deep.active[0].segment_id, 2)
    split_before = LastActions(split_ms=_NOW_MS - 61_000)  # the cooldown is over
    return {
        "warm": Input(plain, _loads(plain, 5_000)),
        "warm, more consumers": Input(plain, _loads(plain, 5_000), _SEGMENTS * 3),
        "a pair to merge": Input(plain, _loads(plain, 10)),
        "cold, merged too often": Input(deep, _loads(deep, 10)),
        "cold, merged too often, after an operation": Input(
            after, _loads(after, 10), renewed=True, before=deep
        ),
        "cold, consumers in the way": Input(plain, _loads(plain, 600), _SEGMENTS),
        "hot, no more segments": Input(plain, _loads(plain, 20_000)),
        "hot, one to split": Input(plain, _loads(plain, 20_000), policy=_ROOMY),
        "hot keys, all resting": Input(
            plain, _loads(plain, 20_000, 10), policy=_ROOMY, last=split_before
        ),
        "hot keys, all resting, a long past": Input(
            deep, _loads(deep, 20_000, 10), policy=_ROOMY, last=split_before
        ),
        "hot keys, all rebucketed": Input(
            *_rebucketed(plain), policy=_ROOMY, last=split_before, renewed=True
        ),
    }


def _loads(layout: SegmentLayout, *rates: float) -> dict[int, SegmentLoad]:
    """These rates in turn on the ring, of messages in; twice as much out, by the hundred bytes."""
    return {
        part.segment_id: SegmentLoad(rate, 100 * rate, 2 * rate, 200 * rate, _LONG_AGO_MS)
        for part, rate in zip(layout.active, rates * _SEGMENTS, strict=False)
    }


def _split_up() -> SegmentLayout:
    """Of one segment, by splits alone, as auto-scaling does it."""
    layout = SegmentLayout.initial(1, _SEGMENTS)
    while len(layout.active) < _SEGMENTS:
        for part in layout.active:
            layout = layout.split_segment(part.segment_id)
    return layout


def _merged_often() -> SegmentLayout:
    """All pairs have been merged and split again until the DAG is as deep as it may be."""
    layout = _split_up()
    for _ in range(_POLICY.max_dag_depth):
        parts = layout.active
        for one, other in zip(parts[::2], parts[1::2], strict=True):
            layout = layout.merge_segments(one.segment_id, other.segment_id)
        for part in layout.active:
            layout = layout.split_segment(part.segment_id)
    return layout


def _rebucketed(layout: SegmentLayout) -> tuple[SegmentLayout, Load]:
    """Each segment several times since its split; every second one has all the load."""
    for buckets in (2, 4, 8, 16):
        for part in layout.active:
            layout = layout.rebucket_segment(part.segment_id, buckets)
    return layout, _loads(layout, 20_000, 10)
