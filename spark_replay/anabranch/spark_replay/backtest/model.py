"""A topic's segments under a policy, driven by a load of the past.

The end of each step is one evaluation of the controller. The load records of the step's segments
are written by the nodes' rule (`core.autoscale.load.changed`, with the policy's `negligible`). Old
sealed segments are forgotten. Then the rules decide (`core.autoscale.decide`, and nothing else). A
decision changes the layout at once. The next step's load lies on the resulting layout.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

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
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16, hash32, segment_hash
from anabranch.core.topics.controller import ControllerSettings
from anabranch.spark_replay.backtest.loads import Load

Floats = NDArray[np.float64]

REPORT_CHANGE: Final = 0.25  # a rate's change by this share causes a new load record
SEALED_S: Final = 130.0  # the least time that sealed segments stay, also with a shorter retention
_SUBSCRIPTION: Final = "back-test"
_LOG_MAX: Final = 200
_KEYS: Final = 1_000
_SPREADS: Final = "uniform, hot:SHARE (0 to 1) or zipf:EXPONENT (0 to 10)"


class Rules(msgspec.Struct, frozen=True):
    """The rules for every topic and policy of a back-test. Times are in seconds.

    `retention_s` is the time for which read messages are kept, and sealed segments with them.
    `flap_s` is the time within which an undone operation counts as one too many. `consumers` are
    those of one stream subscription.
    """

    retention_s: float = 604_800.0
    flap_s: float = 1_800.0
    consumers: int = 0


class TakenAction(msgspec.Struct, frozen=True, array_like=True):
    """An action. `undoes` is the time in milliseconds since the action that it undoes, -1 if it
    undoes none of late.
    """

    at_ms: int
    what: str
    reason: str
    undoes: int


class PolicyFigures(msgspec.Struct, frozen=True):
    """The figures by which a policy is judged. Times are in seconds, `_s`.

    `over_threshold_s` is the time in which a segment took more than a split threshold of this
    policy. `over_first_s` is the same with the thresholds of the comparison's first policy, one
    yardstick for all. `flaps` counts operations that undid another one of late. `blocked_s` has the
    time for which something forbade a needed operation, by its name.
    """

    seconds: float = 0.0
    splits: int = 0
    merges: int = 0
    rebuckets: int = 0
    flaps: int = 0
    over_threshold_s: float = 0.0
    over_first_s: float = 0.0
    segment_hours: float = 0.0
    segments_max: int = 0
    actions: Mapping[str, int] = {}
    blocked_s: Mapping[str, float] = {}

    @property
    def segments_mean(self) -> float:
        """The mean number over the time. For several topics it is the mean of one of them."""
        return self.segment_hours * 3600 / self.seconds if self.seconds else 0.0

    @property
    def operations(self) -> int:
        return self.splits + self.merges + self.rebuckets

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


class PolicyOutcome(msgspec.Struct, frozen=True):
    """One policy on one topic. `segments` is their number in each step.

    `log` has the first actions, not all of them.
    """

    figures: PolicyFigures
    segments: list[float]
    log: list[TakenAction]


class PolicyReplay:
    """One policy on one topic. `below` has the share of the topic's load below each hash."""

    def __init__(
        self,
        load: Load,
        below: Floats,
        policy: AutoScalePolicy,
        yardstick: AutoScalePolicy,
        rules: Rules,
    ) -> None:
        self._load = load
        self._below = below
        self._policy = policy
        self._rules = rules
        kept = ControllerSettings(retention_s=rules.retention_s, doubt_s=SEALED_S)
        self._sealed_ms = kept.sealed_s * 1000
        self._negligible = policy.negligible
        self._thresholds = (policy.split_thresholds, yardstick.split_thresholds)
        budget, most = policy.entry_bucket_budget, policy.max_entry_buckets_per_segment
        self.layout = SegmentLayout.initial(policy.min_segments, budget, most)
        self._records: dict[int, SegmentLoad] = {}
        self._demand = {_SUBSCRIPTION: Demand(rules.consumers)} if rules.consumers else {}
        self._last = LastActions()
        self._counts = Counter[str]()
        self._actions = Counter[str]()
        self._blocked = Counter[str]()
        self._sealings = deque[int]()  # the time of each sealing, in order
        self._over = [0, 0]
        self._segments: list[float] = []
        self._log: list[TakenAction] = []
        self._split_ms: dict[tuple[int, int], int] = {}
        self._merge_ms: dict[tuple[int, int], int] = {}

    def run(self) -> PolicyOutcome:
        """Replays the whole load."""
        shares = self._shares()
        for step, rates in enumerate(self._load.rates):
            now_ms = self._load.at_ms(step + 1)
            self._account(rates, shares)
            self._write_records(rates, shares, now_ms)
            self._prune(now_ms)
            found = decide(
                self.layout, self._records, self._demand, self._policy, now_ms, self._last
            )
            if not isinstance(found, NoAction):
                self._do(found, now_ms)
                shares = self._shares()
            elif found.blocked is not None:
                self._blocked[found.blocked.value] += 1
        return PolicyOutcome(self._figures(), self._segments, self._log)

    def _shares(self) -> dict[int, float]:
        """Returns the share of the topic's load that each active segment takes."""
        below = self._below
        return {
            part.segment_id: float(below[part.end + 1] - below[part.start])
            for part in self.layout.active
        }

    def _account(self, rates: Rates, shares: Mapping[int, float]) -> None:
        worst = max(shares.values())
        for at, thresholds in enumerate(self._thresholds):
            pairs = zip(rates, thresholds, strict=True)
            self._over[at] += any(rate * worst > threshold for rate, threshold in pairs)
        self._segments.append(len(shares))

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
        kept_since = now_ms - self._sealed_ms
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
        undoes = -1
        match decision:
            case Split(segment_id):
                part = self.layout.segments[segment_id]
                undoes = self._undone(self._merge_ms, self._split_ms, part, now_ms)
                self._replace((segment_id,), self.layout.split_children(segment_id), now_ms)
                self._last = msgspec.structs.replace(self._last, split_ms=now_ms)
                self._counts["splits"] += 1
            case Merge(first_id, second_id):
                most = self._policy.max_entry_buckets_per_segment
                children = self.layout.merge_children(first_id, second_id, most)
                undoes = self._undone(self._split_ms, self._merge_ms, children[0], now_ms)
                self._replace(children[0].parent_ids, children, now_ms)
                self._last = msgspec.structs.replace(self._last, merge_ms=now_ms)
                self._counts["merges"] += 1
            case Rebucket(segment_ids, buckets):
                for segment_id in segment_ids:
                    children = self.layout.rebucket_children(segment_id, buckets)
                    self._replace((segment_id,), children, now_ms)
                self._last = msgspec.structs.replace(self._last, rebucket_ms=now_ms)
                self._counts["rebuckets"] += 1
            case NoAction():
                raise AssertionError("nothing is not done")
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
            self._records.pop(parent, None)
            self._sealings.append(now_ms)

    def _figures(self) -> PolicyFigures:
        step_s = self._load.step_ms / 1000
        return PolicyFigures(
            seconds=len(self._segments) * step_s,
            splits=self._counts["splits"],
            merges=self._counts["merges"],
            rebuckets=self._counts["rebuckets"],
            flaps=self._counts["flaps"],
            over_threshold_s=self._over[0] * step_s,
            over_first_s=self._over[1] * step_s,
            segment_hours=sum(self._segments) * step_s / 3600,
            segments_max=int(max(self._segments)),
            actions=dict(sorted(self._actions.items())),
            blocked_s={name: count * step_s for name, count in sorted(self._blocked.items())},
        )


def spread(text: str, topic: str) -> Floats:
    """Returns, for each hash and the ring's end, the share of a topic's load that lies below it.

    `text` is `uniform`, `hot:SHARE` (one key has this share) or `zipf:EXPONENT` (a thousand keys
    share the load by Zipf's law). Keys lie at the cluster's own hashes. Raises InvalidInputError.

    >>> [float(each) for each in spread("uniform", "t")[[0, 16384, 65536]]]
    [0.0, 0.25, 1.0]
    """
    kind, _, given = text.partition(":")
    try:
        number = float(given or 0)
    except ValueError:
        kind = ""
    if kind == "uniform" and not given:
        weights = np.zeros(1)
    elif kind == "hot" and given and 0 <= number <= 1:
        weights = np.array([number])
    elif kind == "zipf" and given and 0 <= number <= 10:
        weights = np.arange(1, _KEYS + 1, dtype=np.float64) ** -number
        weights /= weights.sum()
    else:
        raise InvalidInputError(f"{text!r} is no spread of load; there are {_SPREADS}")
    places = [segment_hash(hash32(f"{topic}/0/{number}")) for number in range(len(weights))]
    at = np.bincount(places, weights, RING16) + max(0.0, 1 - weights.sum()) / RING16
    return np.concatenate(([0.0], np.cumsum(at)))
