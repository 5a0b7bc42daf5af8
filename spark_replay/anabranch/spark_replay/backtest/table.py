"""The comparison on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch.spark_replay.backtest.comparison import Comparison, outcome_of
from anabranch.spark_replay.backtest.outcome import PolicyFigures
from anabranch.spark_replay.report.output import clock

HEAD: Final = (
    *("splits", "merges", "rebuckets", "flaps", "over threshold", "over first's"),
    *("segment-hours", "mean", "max"),
)
_TOPICS_MAX: Final = 10


def table(found: Comparison) -> str:
    """Writes each policy's figures, in all and for the topics with the most actions."""
    return "\n".join([*_head(found), "", *_totals(found), "", *_why(found), *_topics(found), ""])


def cells(figures: PolicyFigures) -> tuple[str, ...]:
    """Returns the cells in the order of `HEAD`."""
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


def counted(counts: Mapping[str, int]) -> str:
    """Returns reasons with their counts."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def lasted(times_s: Mapping[str, float]) -> str:
    """Returns reasons with the time for which each forbade something."""
    return ", ".join(f"{name} {duration(each)}" for name, each in times_s.items()) or "nothing"


def extent(found: Comparison) -> str:
    """Returns the replayed load, in words."""
    begin_ms, end_ms = found.span
    return (
        f"{len(found.topics):,} topics, {found.topic_days:,.1f} topic-days, {clock(begin_ms)} to "
        f"{clock(end_ms)}"
    )


def _head(found: Comparison) -> Iterator[str]:
    yield f"{found.load}: {extent(found)}"
    yield found.scale
    yield ", ".join(f"{name} {value}" for name, value in found.model.items())
    yield f"{len(found.policies)} policies in {found.seconds:.1f} s"


def _totals(found: Comparison) -> Iterator[str]:
    rows = [(name, *cells(found.total(name))) for name in found.policies]
    yield from _aligned(("policy", *HEAD), rows)


def _why(found: Comparison) -> Iterator[str]:
    width = max(map(len, found.policies))
    for name in found.policies:
        total = found.total(name)
        yield f"{name:<{width}}  done for: {counted(total.actions)}"
        yield f"{'':<{width}}  blocked by: {lasted(total.blocked_s)}"


def _topics(found: Comparison) -> Iterator[str]:
    busiest = found.busiest(_TOPICS_MAX)
    if len(found.topics) == 1:
        return
    yield ""
    if len(found.topics) > len(busiest):
        yield f"the {len(busiest)} topics with which most was done (all are in the JSON):"
    rows = [
        (topic.topic, name, *cells(outcome_of(topic, name).figures))
        for topic in busiest
        for name in found.policies
    ]
    yield from _aligned(("topic", "policy", *HEAD), rows)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    names = len(head) - len(HEAD)
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(
            cell.ljust(width) if at < names else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
