"""A topic's segments under a policy, driven by a load of the past.

The end of each step is one evaluation of the controller. First a decision takes effect if its time
has come. Then the load records of the step's segments are written by the nodes' rule
(`core.autoscale.load.changed`, with the policy's `negligible`). Old sealed segments are forgotten.
Then the rules decide (`core.autoscale.decide`, and nothing else). A decision changes the layout at
once, or after as many whole steps as an operation takes. Meanwhile there is no other decision. The
next step's load lies on the resulting layout.

The replay skips the steps between two changes: `Instant` tells until when a decision holds.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final, cast

import msgspec
import numpy as np

from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.decisions import (
    Decision,
    Merge,
    NoAction,
    Rebucket,
    Split,
    describe,
)
from anabranch.core.autoscale.load import Rates, SegmentLoad, changed
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.layout import SegmentLayout, without
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.topics.controller import ControllerSettings
from anabranch.spark_replay.backtest.grid import REPORT_CHANGE, Floats, Grid
from anabranch.spark_replay.backtest.instant import Instant
from anabranch.spark_replay.backtest.outcome import PolicyFigures, PolicyOutcome, TakenAction
from anabranch.spark_replay.backtest.spread import shares

SUBSCRIPTION: Final = "back-test"
_CHUNK: Final = 256
_LOG_MAX: Final = 200


class Rules(msgspec.Struct, frozen=True):
    """The rules for every topic and policy of a back-test. Times are in seconds.

    `operation_s` is the time from a decision to its effect. `retention_s` is the time for which
    read messages are kept, and sealed segments with them. `sealed_retention_s` is the least time
    that those stay. `flap_s` is the time within which an undone operation counts as one too many.
    `segments` and `consumers` are the numbers to begin with.
    """

    operation_s: float = 0.0
    retention_s: float = 604_800.0
    flap_s: float = 1_800.0
    segments: int = 1
    consumers: int = 0
    sealed_retention_s: float = 130.0

    @property
    def sealed_s(self) -> float:
        """The seconds that a sealed segment stays in the layout, by the controllers' own rule."""
        kept = ControllerSettings(retention_s=self.retention_s, doubt_s=self.sealed_retention_s)
        return kept.sealed_s


class _Part:
    """An active segment: its rates in each run of steps, and the step of its next record.

    `negligible` has the rates below which its policy takes all for alike.
    """

    __slots__ = ("_chunk", "_first", "_grid", "_negligible", "_share", "due", "weights")

    def __init__(self, grid: Grid, weights: Floats, negligible: Rates, due: int) -> None:
        self._grid = grid
        self.weights = weights
        self.due = due  # the step at whose end its record is to be written
        # A fixed share of the topic's load changes whenever that does.
        self._share = share = float(weights[0]) if len(weights) == 1 else -1.0
        if share > 0:
            a, b, c, d = negligible
            negligible = (a / share, b / share, c / share, d / share)  # for the topic's load
        self._negligible = negligible
        self._first = 0
        self._chunk: list[list[float]] = []

    def write(self, run: int) -> Rates:
        """Writes a record of the run's rates, and finds the step at which it will be old."""
        if self._share > 0:
            self.due = self._grid.news_after(run, self._negligible)
            a, b, c, d = self._grid.totals[run]
            share = self._share
            return (a * share, b * share, c * share, d * share)
        written = self._rates(run)
        self.due = self._grid.steps
        if self._share < 0:
            for later in range(run + 1, self._grid.runs):
                if changed(written, self._rates(later), REPORT_CHANGE, self._negligible):
                    self.due = self._grid.firsts[later]
                    break
        return written

    def _rates(self, run: int) -> Rates:
        at = run - self._first
        if not 0 <= at < len(self._chunk):
            self._first, at = run, 0
            block = self._grid.rates[run : run + _CHUNK]
            self._chunk = (block @ self.weights).tolist()
        msgs_in, bytes_in, msgs_out, bytes_out = self._chunk[at]
        return (msgs_in, bytes_in, msgs_out, bytes_out)


class PolicyReplay:
    """One policy on one topic. `below` has the share of a piece's load below each hash."""

    def __init__(
        self,
        grid: Grid,
        below: Floats,
        policy: AutoScalePolicy,
        yardstick: AutoScalePolicy,
        rules: Rules,
    ) -> None:
        self._grid = grid
        self._below = below
        self._policy = policy
        self._rules = rules
        self._sealed_ms = rules.sealed_s * 1000
        self._negligible = policy.negligible
        self._thresholds = np.array([policy.split_thresholds, yardstick.split_thresholds])
        self._step_s = grid.step_ms / 1000
        self._delay = math.ceil(rules.operation_s / self._step_s)
        budget, most = policy.entry_bucket_budget, policy.max_entry_buckets_per_segment
        self.layout = SegmentLayout.initial(rules.segments, budget, most)
        self.load: dict[int, SegmentLoad] = {}
        self._parts: dict[int, _Part] = {}
        self._since = 0  # the first step of this layout
        self._layouts: list[tuple[int, int]] = []
        self._enter(0)
        self._demand: dict[str, Demand] = {}
        self._consumers = list(reversed(grid.consumers or ((0, rules.consumers),)))
        self.last = LastActions()
        self._awaited: tuple[int, Decision] | None = None
        self._holds_until_ms = -math.inf
        self._decision: Decision = NoAction(None, "")
        self._counts = Counter[str]()
        self._actions = Counter[str]()
        self._blocked = Counter[str]()
        self._sealed = deque[int]()  # the time of each sealing, in order
        self._over = np.zeros(2, np.int64)
        self._segment_steps = 0
        self._log: list[TakenAction] = []
        self._split_ms: dict[tuple[int, int], int] = {}
        self._merge_ms: dict[tuple[int, int], int] = {}

    def run(self, name: str) -> PolicyOutcome:
        """Replays the whole load."""
        step = 0  # the step to look at, at its end
        while step < self._grid.steps:
            self._evaluate(step)
            following = max(step + 1, min(self._next(step), self._grid.steps))
            self._account(following - step)
            step = following
        self._leave(self._grid.steps)
        return PolicyOutcome(name, self._figures(), self._layouts, self._log)

    # --- one evaluation -----------------------------------------------------------------

    def _evaluate(self, step: int) -> None:
        now_ms = self._grid.at_ms(step + 1)
        news = self._observe(step, now_ms)
        if self._awaited is not None and self._awaited[0] <= step:
            decision, self._awaited = self._awaited[1], None
            self._do(decision, step)
            news = True
        news |= self._prune(now_ms)
        if self._awaited is not None or not (news or now_ms >= self._holds_until_ms):
            return
        instant = Instant(now_ms)
        self._counts["worked_out"] += 1
        # `Instant` checks itself, and raises for an operation that it does not have.
        found = decide(
            self.layout, self.load, self._demand, self._policy, cast(int, instant), self.last
        )
        self._decision = found
        if isinstance(found, NoAction):
            self._holds_until_ms = instant.holds_until_ms
        elif self._delay:
            self._awaited = (step + self._delay, found)
        else:
            self._do(found, step)

    def _observe(self, step: int, now_ms: int) -> bool:
        """Writes load records and counts consumers. Returns True if anything is new."""
        news = False
        run = self._grid.run_of(step)
        for segment_id, part in self._parts.items():
            if part.due <= step:
                self.load[segment_id] = SegmentLoad(*part.write(run), now_ms)
                news = True
        while self._consumers and self._consumers[-1][0] <= step:
            _, count = self._consumers.pop()
            if count or self._demand:  # a subscription stays when its last consumer has left
                self._demand = {SUBSCRIPTION: Demand(count)}
            news = True
        return news

    def _next(self, step: int) -> int:
        """Returns the next step whose end may differ from this one's."""
        if self._awaited is None and not isinstance(self._decision, NoAction):
            return step + 1  # it has just taken effect
        found = [part.due for part in self._parts.values()]
        if self._consumers:
            found.append(self._consumers[-1][0])
        if self._awaited is not None:
            return min(*found, self._awaited[0])
        if math.isfinite(self._holds_until_ms):
            found.append(self._step_at(self._holds_until_ms))
        if self._sealed:
            found.append(self._step_at(self._sealed[0] + self._sealed_ms))
        return min(found)

    def _step_at(self, at_ms: float) -> int:
        """Returns the first step whose end is not before that time."""
        return math.ceil((at_ms - self._grid.begin_ms) / self._grid.step_ms) - 1

    def _account(self, steps: int) -> None:
        """Counts `steps` evaluations, all of which had the last one's result."""
        if self._awaited is not None:
            return
        self._counts["evaluations"] += steps
        if isinstance(self._decision, NoAction) and self._decision.blocked is not None:
            self._blocked[self._decision.blocked.value] += steps

    def _prune(self, now_ms: int) -> bool:
        """Removes sealed segments whose time is over, with their parents.
        Returns True if any have gone.
        """
        kept_since = now_ms - self._sealed_ms
        if not self._sealed or self._sealed[0] > kept_since:
            return False
        while self._sealed and self._sealed[0] <= kept_since:
            self._sealed.popleft()
        parts = self.layout.segments
        gone = [
            each
            for each, part in parts.items()
            if not part.is_active and part.sealed_at_ms <= kept_since
        ]
        left = without(parts, gone)
        self.layout = SegmentLayout(self.layout.epoch + 1, self.layout.next_segment_id, left)
        return True

    # --- operations ---------------------------------------------------------------------

    def _do(self, decision: Decision, step: int) -> None:
        now_ms = self._grid.at_ms(step + 1)
        undoes = -1
        self._leave(step + 1)
        match decision:
            case Split(segment_id):
                part = self.layout.segments[segment_id]
                undoes = self._undone(self._merge_ms, self._split_ms, part, now_ms)
                self._replace((segment_id,), self.layout.split_children(segment_id), now_ms)
                self.last = msgspec.structs.replace(self.last, split_ms=now_ms)
                self._counts["splits"] += 1
            case Merge(first_id, second_id):
                most = self._policy.max_entry_buckets_per_segment
                children = self.layout.merge_children(first_id, second_id, most)
                undoes = self._undone(self._split_ms, self._merge_ms, children[0], now_ms)
                self._replace(children[0].parent_ids, children, now_ms)
                self.last = msgspec.structs.replace(self.last, merge_ms=now_ms)
                self._counts["merges"] += 1
            case Rebucket(segment_ids, buckets):
                for segment_id in segment_ids:
                    children = self.layout.rebucket_children(segment_id, buckets)
                    self._replace((segment_id,), children, now_ms)
                self.last = msgspec.structs.replace(self.last, rebucket_ms=now_ms)
                self._counts["rebuckets"] += 1
            case NoAction():
                raise AssertionError("nothing is not done")
        self._enter(step + 1)
        self._actions[decision.reason.value] += 1
        if len(self._log) < _LOG_MAX:
            self._log.append(TakenAction(now_ms, describe(decision), decision.reason.value, undoes))

    def _undone(
        self,
        others: dict[tuple[int, int], int],
        own: dict[tuple[int, int], int],
        part: SegmentInfo,
        now_ms: int,
    ) -> int:
        """Returns the time since the opposite was done to the same range, if it is too short; else
        -1.
        """
        span = (part.start, part.end)
        own[span] = now_ms
        since_ms = now_ms - others.get(span, -1 << 62)
        if since_ms > self._rules.flap_s * 1000:
            return -1
        self._counts["flaps"] += 1
        return since_ms

    def _replace(
        self, parents: tuple[int, ...], children: tuple[SegmentInfo, ...], now_ms: int
    ) -> None:
        self.layout = self.layout.replaced(parents, children, {}, now_ms)
        for parent in parents:
            self.load.pop(parent, None)
            self._sealed.append(now_ms)

    def _enter(self, step: int) -> None:
        """Begins a layout at a step.
        Each new segment has its first record at the end of that step.
        """
        self._since = step
        self._parts = {
            part.segment_id: self._parts.get(part.segment_id) or self._part(part, step)
            for part in self.layout.active
        }
        self._layouts.append((self._grid.at_ms(step), len(self._parts)))

    def _part(self, part: SegmentInfo, step: int) -> _Part:
        weights = shares(self._below, self._grid.edges, part.start, part.end)
        return _Part(self._grid, weights, self._negligible, step)

    def _leave(self, after: int) -> None:
        """Ends a layout before a step: adds up its time of overload, and its width."""
        if after <= self._since:
            return
        runs, lengths = self._grid.lengths(self._since, after)
        weights = np.stack([part.weights for part in self._parts.values()], axis=1)
        if len(weights) == 1:  # then it is the same segment at all times
            weights = weights.max(axis=1, keepdims=True)
        worst = (self._grid.rates[runs] @ weights).max(axis=2)
        over = (worst[:, None] > self._thresholds).any(axis=2)
        self._over += lengths @ over
        self._segment_steps += len(self._parts) * (after - self._since)
        self._since = after

    def _figures(self) -> PolicyFigures:
        counts = self._counts
        own, first = (self._over * self._step_s).tolist()
        return PolicyFigures(
            seconds=self._grid.steps * self._step_s,
            splits=counts["splits"],
            merges=counts["merges"],
            rebuckets=counts["rebuckets"],
            flaps=counts["flaps"],
            over_threshold_s=own,
            over_first_s=first,
            segment_hours=self._segment_steps * self._step_s / 3600,
            segments_max=max(count for _, count in self._layouts),
            actions=dict(sorted(self._actions.items())),
            blocked_s={name: n * self._step_s for name, n in sorted(self._blocked.items())},
            evaluations=counts["evaluations"],
            worked_out=counts["worked_out"],
        )
