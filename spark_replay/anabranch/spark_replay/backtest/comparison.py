"""The outcomes of several policies as one value, on a terminal, as JSON, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.spark_replay.backtest.model import PolicyFigures, PolicyOutcome
from anabranch.spark_replay.report import Bins, clock, document, plot, rows

_HEAD: Final = (
    *("splits", "merges", "rebuckets", "flaps", "over threshold", "over first's"),
    *("segment-hours", "mean", "max"),
)
_TOPICS_MAX: Final = 20  # of the table and of the page; the JSON has all


class TopicResult(msgspec.Struct, frozen=True):
    """All policies on one topic, or the reason why its load cannot be used.

    `load` is messages in per second, by bin of the plots, and `outcomes` count segments by bin.
    """

    topic: str
    fault: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    load: list[float] = []
    outcomes: Mapping[str, PolicyOutcome] = {}


class Comparison(msgspec.Struct, frozen=True):
    """Several policies on the same load. `model` has the assumptions, by name."""

    load: str
    model: Mapping[str, str | float]
    policies: Mapping[str, AutoScalePolicy]
    topics: Sequence[TopicResult]  # those that could be used
    faults: Mapping[str, str]  # of the other topics
    bins: Bins
    seconds: float

    @property
    def topic_days(self) -> float:
        return sum(topic.end_ms - topic.begin_ms for topic in self.topics) / 86_400_000

    @property
    def extent(self) -> str:
        """The replayed load and the assumptions, in words."""
        begin_ms = min(topic.begin_ms for topic in self.topics)
        end_ms = max(topic.end_ms for topic in self.topics)
        model = ", ".join(f"{name} {value}" for name, value in self.model.items())
        return (
            f"{self.load}: {len(self.topics):,} topics, {self.topic_days:,.1f} topic-days, "
            f"{clock(begin_ms)} to {clock(end_ms)}; {model}"
        )

    def total(self, policy: str) -> PolicyFigures:
        """Adds up the figures of all topics."""
        return PolicyFigures.total(topic.outcomes[policy].figures for topic in self.topics)

    def json(self) -> str:
        """Returns the comparison as JSON, for programs."""
        found: dict[str, Any] = {
            "load": self.load,
            "topics": len(self.topics),
            "topic_days": round(self.topic_days, 3),
            "seconds": round(self.seconds, 2),
            "model": self.model,
            "left_out": self.faults,
            "policies": [
                {
                    "name": name,
                    "policy": policy,
                    "total": self.total(name).form(),
                    "topics": [_topic(topic, topic.outcomes[name]) for topic in self.topics],
                }
                for name, policy in self.policies.items()
            ],
        }
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def _topic(topic: TopicResult, outcome: PolicyOutcome) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "from": clock(topic.begin_ms),
        "to": clock(topic.end_ms),
        **outcome.figures.form(),
        "log": [
            {"at": clock(each.at_ms), "action": each.what, "reason": each.reason}
            | ({"undoes_after_s": each.undoes / 1000} if each.undoes >= 0 else {})
            for each in outcome.log
        ],
    }


# --- the table --------------------------------------------------------------------------------


def table(found: Comparison) -> str:
    """Writes each policy's figures, in all and for the topics with the most actions."""
    parts = [found.extent, "", *_aligned(("policy", *_HEAD), _totals(found), 1), ""]
    parts += [": ".join(each) for each in _why(found)]
    if len(found.topics) > 1:
        parts += ["", *_aligned(("topic", "policy", *_HEAD), _by_topic(found), 2)]
    return "\n".join([*parts, ""])


def _totals(found: Comparison) -> list[tuple[str, ...]]:
    return [(name, *_cells(found.total(name))) for name in found.policies]


def _by_topic(found: Comparison) -> list[tuple[str, ...]]:
    def order(topic: TopicResult) -> tuple[int, str]:
        done = sum(each.figures.operations for each in topic.outcomes.values())
        return (-done, topic.topic)

    return [
        (topic.topic, name, *_cells(topic.outcomes[name].figures))
        for topic in sorted(found.topics, key=order)[:_TOPICS_MAX]
        for name in found.policies
    ]


def _why(found: Comparison) -> Iterator[tuple[str, str]]:
    """Yields the reasons of actions with their counts, and of their absence with its time."""
    for name in found.policies:
        total = found.total(name)
        done = ", ".join(f"{why} {count:,}" for why, count in total.actions.items())
        blocked = ", ".join(f"{why} {duration(each)}" for why, each in total.blocked_s.items())
        yield f"{name} done for", done or "none"
        yield f"{name} blocked by", blocked or "nothing"


def _cells(figures: PolicyFigures) -> tuple[str, ...]:
    return (
        f"{figures.splits:,}",
        f"{figures.merges:,}",
        f"{figures.rebuckets:,}",
        f"{figures.flaps:,}",
        duration(figures.over_threshold_s),
        duration(figures.over_first_s),
        f"{figures.segment_hours:,.1f}",
        f"{figures.segments_mean:.2f}",
        f"{figures.segments_max:,}",
    )


def duration(seconds: float) -> str:
    """Writes a duration for people.

    >>> duration(0), duration(90), duration(7_260), duration(200_000)
    ('0', '1.5 min', '2.0 h', '55.6 h')
    """
    if not seconds:
        return "0"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _aligned(head: Sequence[str], cells: Sequence[Sequence[str]], names: int) -> Iterator[str]:
    widths = [max(len(row[at]) for row in (head, *cells)) for at in range(len(head))]
    for row in (head, *cells):
        yield "  ".join(
            cell.ljust(width) if at < names else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


# --- the page ---------------------------------------------------------------------------------


def page(found: Comparison) -> str:
    """Returns a self-contained HTML page."""
    return document("Back-test of auto-scale policies", _body(found))


def _body(found: Comparison) -> Iterator[str]:
    yield f"<p>{escape(found.extent)}</p>"
    if found.faults:
        yield '<div class="verdict violated"><b>Not all topics could be used</b></div>'
        yield rows(("topic", "left out because"), found.faults.items(), 2)
    yield "<h2>Policies side by side</h2>"
    yield rows(("policy", *_HEAD), _totals(found))
    yield rows(("policy", "reasons"), _why(found), 2)
    yield "<h2>Load of all topics</h2>"
    yield plot({"load": _summed([topic.load for topic in found.topics])}, found.bins, "msg/s")
    yield "<h2>Segments of all topics</h2>"
    segments = {
        name: _summed([topic.outcomes[name].segments for topic in found.topics])
        for name in found.policies
    }
    yield plot(segments, found.bins, "segments")
    yield "<h2>By topic</h2>"
    yield rows(("topic", "policy", *_HEAD), _by_topic(found), 2)


def _summed(series: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) for values in zip(*series, strict=True)]
