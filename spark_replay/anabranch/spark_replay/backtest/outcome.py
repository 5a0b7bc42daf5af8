"""What a policy came to on one topic, and on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import msgspec


class TakenAction(msgspec.Struct, frozen=True, array_like=True):
    """Something that was done. `undoes`: how many milliseconds ago what it undoes was done; -1
    when it undoes nothing of late.
    """

    at_ms: int
    what: str
    reason: str
    undoes: int


class PolicyFigures(msgspec.Struct, frozen=True):
    """What a policy is judged by. Times in seconds, `_s`.

    `over_threshold_s`: in which a segment took more than a split threshold of this policy,
    `over_first_s`: of the first policy of the comparison, the same yardstick for all.
    `flaps`: operations that undid another one of late. `blocked_s`: how long what had to be done
    was forbidden, by what forbade it. `evaluations`: decisions; `worked_out`: those of them that
    could differ from the one before.
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
        """Over the time; of several topics, the mean of one of them."""
        return self.segment_hours * 3600 / self.seconds if self.seconds else 0.0

    @property
    def operations(self) -> int:
        return self.splits + self.merges + self.rebuckets

    def form(self) -> dict[str, object]:
        """Returns the figures as JSON has them."""
        fields: dict[str, object] = {}
        for name, value in msgspec.to_builtins(self).items():
            fields[name] = round(value, 3) if isinstance(value, float) else value
            if name == "segments_max":
                fields["segments_mean"] = round(self.segments_mean, 3)
        return fields

    @classmethod
    def total(cls, parts: Iterable[PolicyFigures]) -> Self:
        """Sums, but for the most segments, which is the largest of one topic."""
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
    """One policy on one topic. `layouts`: how many segments there are, from when on, in ms.

    `log`: the first actions, not all of them.
    """

    policy: str
    figures: PolicyFigures
    layouts: list[tuple[int, int]]
    log: list[TakenAction]


class TopicResult(msgspec.Struct, frozen=True):
    """All policies on one topic, or why its load cannot be used. `load`: messages in per second, by
    bin of the plots.
    """

    topic: str
    fault: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    load: list[float] = []
    outcomes: list[PolicyOutcome] = []
