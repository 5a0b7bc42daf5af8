"""The outcome of a policy on one topic, and on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import msgspec


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
    time for which something forbade a needed operation, by its name. `evaluations` counts
    decisions, and `worked_out` those that could differ from the one before.
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
    evaluations: int = 0
    worked_out: int = 0

    @property
    def segments_mean(self) -> float:
        """The mean number over the time. For several topics it is the mean of one of them."""
        return self.segment_hours * 3600 / self.seconds if self.seconds else 0.0

    @property
    def operations(self) -> int:
        return self.splits + self.merges + self.rebuckets

    def form(self) -> dict[str, object]:
        """Returns the figures in the form of the JSON."""
        fields: dict[str, object] = {}
        for name, value in msgspec.to_builtins(self).items():
            fields[name] = round(value, 3) if isinstance(value, float) else value
            if name == "segments_max":
                fields["segments_mean"] = round(self.segments_mean, 3)
        return fields

    @classmethod
    def total(cls, parts: Iterable[PolicyFigures]) -> Self:
        """Returns sums, except for `segments_max`, which is the largest of one topic."""
        found = Counter[str]()
        actions, blocked = Counter[str](), Counter[str]()
        segments_max = 0
        for part in parts:
            for name in cls.__struct_fields__:
                value = getattr(part, name)
                if name not in ("actions", "blocked_s", "segments_max"):
                    found[name] += value
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
    """One policy on one topic. `layouts` has the begin of each layout in ms, and its number of
    segments.

    `log` has the first actions, not all of them.
    """

    policy: str
    figures: PolicyFigures
    layouts: list[tuple[int, int]]
    log: list[TakenAction]


class TopicResult(msgspec.Struct, frozen=True):
    """All policies on one topic, or the reason why its load cannot be used.

    `load` is messages in per second, by bin of the plots.
    """

    topic: str
    fault: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    load: list[float] = []
    outcomes: list[PolicyOutcome] = []
