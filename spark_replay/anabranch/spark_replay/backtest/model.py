"""A topic's segments under a policy, driven by a load of the past.

The end of each step is one evaluation of the controller. The load records of the step's segments
are written by the nodes' rule (`core.autoscale.load.changed`, with the policy's `negligible`). Old
sealed segments are forgotten. Then the rules decide (`core.autoscale.decide`, and nothing else). A
decision changes the layout at once. The next step's load lies on the resulting layout, evenly over
the ring.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from anabranch.core.autoscale.decide import LastActions, decide
from anabranch.core.autoscale.decisions import Decision, Merge, NoAction, Rebucket, Split
from anabranch.core.autoscale.load import Rates, SegmentLoad, changed
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.layout import SegmentLayout, without
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.hashing import RING16
from anabranch.core.topics.controller import ControllerSettings
from anabranch.spark_replay.backtest.loads import Load

REPORT_CHANGE: Final = 0.25  # a rate's change by this share causes a new load record
FLAP_MS: Final = 3_600_000  # an operation that is undone sooner was one too many
SEALED_MS: Final = ControllerSettings().sealed_s * 1000  # sealed segments stay in the layout


class PolicyFigures(msgspec.Struct):
    """The figures by which a policy is judged. Times are in seconds, `_s`.

    `over_threshold_s` is the time in which a segment took more than a split threshold of the
    comparison's first policy, one yardstick for all. `flaps` counts operations that undid another
    one of late. `actions` counts operations by reason. `blocked_s` has the time for which something
    forbade a needed operation, by its name.
    """

    seconds: float = 0.0
    splits: int = 0
    merges: int = 0
    rebuckets: int = 0
    flaps: int = 0
    over_threshold_s: float = 0.0
    segment_hours: float = 0.0
    segments_max: int = 0
    actions: dict[str, int] = {}
    blocked_s: dict[str, float] = {}

    @property
    def segments_mean(self) -> float:
        """The mean number over the time. For several topics it is the mean of one of them."""
        return self.segment_hours * 3600 / self.seconds if self.seconds else 0.0

    def form(self) -> dict[str, object]:
        """Returns the figures in the form of the JSON."""
        fields = msgspec.structs.asdict(self) | {"segments_mean": self.segments_mean}
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in fields.items()
        }

    @classmethod
    def total(cls, parts: Iterable[PolicyFigures]) -> Self:
        """Returns sums, except for `segments_max`, which is the largest of one topic."""
        found = Counter[str]()
        actions, blocked = Counter[str](), Counter[str]()
        segments_max = 0
        for part in parts:
            for name in cls.__struct_fields__:
                if name not in ("actions", "blocked_s", "segments_max"):
                    found[name] += getattr(part, name)
            actions.update(part.actions)
            blocked.update(part.blocked_s)
            segments_max = max(segments_max, part.segments_max)
        return cls(
            **found,
            segments_max=segments_max,
            actions=dict(sorted(actions.items())),
            blocked_s=dict(sorted(blocked.items())),
        )


class PolicyReplay:
    """One policy on one topic. `yardstick` is the first policy of the comparison."""

    def __init__(self, load: Load, policy: AutoScalePolicy, yardstick: AutoScalePolicy) -> None:
        self._load = load
        self._policy = policy
        self._negligible = policy.negligible
        self._thresholds = yardstick.split_thresholds
        budget, most = policy.entry_bucket_budget, policy.max_entry_buckets_per_segment
        self.layout = SegmentLayout.initial(policy.min_segments, budget, most)
        self.segments: list[int] = []  # their number in each step
        self._records: dict[int, SegmentLoad] = {}
        self._last = LastActions()
        self._step_s = load.step_ms / 1000
        self._found = PolicyFigures()
        self._sealings = deque[int]()  # the time of each sealing, in order
        self._split_ms: dict[tuple[int, int], int] = {}  # when a range was split last
        self._merge_ms: dict[tuple[int, int], int] = {}

    def run(self) -> PolicyFigures:
        """Replays the whole load."""
        shares = self._shares()
        for step, rates in enumerate(self._load.rates):
            now_ms = self._load.at_ms(step + 1)
            self._account(rates, shares)
            self._write_records(rates, shares, now_ms)
            self._prune(now_ms)
            found = decide(self.layout, self._records, {}, self._policy, now_ms, self._last)
            if not isinstance(found, NoAction):
                self._do(found, now_ms)
                shares = self._shares()
            elif found.blocked is not None:
                blocked = self._found.blocked_s
                blocked[found.blocked.value] = blocked.get(found.blocked.value, 0) + self._step_s
        return self._figures()

    def _shares(self) -> dict[int, float]:
        """Returns the share of the topic's load that each active segment takes."""
        return {
            part.segment_id: (part.end + 1 - part.start) / RING16 for part in self.layout.active
        }

    def _account(self, rates: Rates, shares: Mapping[int, float]) -> None:
        worst = max(shares.values())
        pairs = zip(rates, self._thresholds, strict=True)
        if any(rate * worst > threshold for rate, threshold in pairs):
            self._found.over_threshold_s += self._step_s
        self.segments.append(len(shares))

    def _write_records(self, rates: Rates, shares: Mapping[int, float], now_ms: int) -> None:
        a, b, c, d = rates
        for segment_id, share in shares.items():
            now = (a * share, b * share, c * share, d * share)
            known = self._records.get(segment_id)
            before = None if known is None else known.rates
            if changed(before, now, REPORT_CHANGE, self._negligible):
                self._records[segment_id] = SegmentLoad(*now, now_ms)

    def _prune(self, now_ms: int) -> None:
        """Removes sealed segments whose time is over."""
        kept_since = now_ms - SEALED_MS
        if not self._sealings or self._sealings[0] > kept_since:
            return
        while self._sealings and self._sealings[0] <= kept_since:
            self._sealings.popleft()
        parts = self.layout.segments
        gone = [
            each
            for each, part in parts.items()
            if not part.is_active and part.sealed_at_ms <= kept_since
        ]
        left = without(parts, gone)
        self.layout = SegmentLayout(self.layout.epoch + 1, self.layout.next_segment_id, left)

    # --- operations ---------------------------------------------------------------------

    def _do(self, decision: Decision, now_ms: int) -> None:
        match decision:
            case Split(segment_id):
                part = self.layout.segments[segment_id]
                self._note(self._merge_ms, self._split_ms, part, now_ms)
                self._replace((segment_id,), self.layout.split_children(segment_id), now_ms)
                self._last = msgspec.structs.replace(self._last, split_ms=now_ms)
                self._found.splits += 1
            case Merge(first_id, second_id):
                most = self._policy.max_entry_buckets_per_segment
                children = self.layout.merge_children(first_id, second_id, most)
                self._note(self._split_ms, self._merge_ms, children[0], now_ms)
                self._replace(children[0].parent_ids, children, now_ms)
                self._last = msgspec.structs.replace(self._last, merge_ms=now_ms)
                self._found.merges += 1
            case Rebucket(segment_ids, buckets):
                for segment_id in segment_ids:
                    children = self.layout.rebucket_children(segment_id, buckets)
                    self._replace((segment_id,), children, now_ms)
                self._last = msgspec.structs.replace(self._last, rebucket_ms=now_ms)
                self._found.rebuckets += 1
            case NoAction():
                raise AssertionError("nothing is not done")
        actions = self._found.actions
        actions[decision.reason.value] = actions.get(decision.reason.value, 0) + 1

    def _note(
        self,
        others: Mapping[tuple[int, int], int],
        own: dict[tuple[int, int], int],
        part: SegmentInfo,
        now_ms: int,
    ) -> None:
        """Notes the operation, and counts it if it undoes the opposite one on the same range."""
        span = (part.start, part.end)
        own[span] = now_ms
        self._found.flaps += span in others and now_ms - others[span] <= FLAP_MS

    def _replace(
        self, parents: tuple[int, ...], children: tuple[SegmentInfo, ...], now_ms: int
    ) -> None:
        self.layout = self.layout.replaced(parents, children, {}, now_ms)
        for parent in parents:
            self._records.pop(parent, None)
            self._sealings.append(now_ms)

    def _figures(self) -> PolicyFigures:
        found = self._found
        found.seconds = len(self.segments) * self._step_s
        found.segment_hours = sum(self.segments) * self._step_s / 3600
        found.segments_max = max(self.segments)
        found.actions = dict(sorted(found.actions.items()))
        found.blocked_s = dict(sorted(found.blocked_s.items()))
        return found
