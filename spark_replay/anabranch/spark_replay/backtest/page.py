"""The comparison as one page that needs nothing else: figures, load and segments over time."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from anabranch.spark_replay.backtest.comparison import (
    Comparison,
    outcome_of,
    segments_over_time,
)
from anabranch.spark_replay.backtest.outcome import TopicResult
from anabranch.spark_replay.backtest.table import HEAD, cells, counted, duration, extent, lasted
from anabranch.spark_replay.report.charts import WIDTH, colours, legend, lines
from anabranch.spark_replay.report.document import document

_PLOTTED_MAX: Final = 8
_LISTED_MAX: Final = 40
_HALF: Final = WIDTH / 2 - 10
_LOAD_COLOUR: Final = "#5b5ea6"


def page(found: Comparison) -> str:
    """Returns a self-contained HTML page."""
    body = "".join(
        (
            "<h1>Back-test of auto-scale policies</h1>",
            f"<p><b>{escape(found.scale.capitalize())}.</b> ",
            f"{escape(found.load)}: {escape(extent(found))}.</p>",
            *_faults(found),
            *_policies(found),
            *_plots(found),
            *_topics(found),
            *_model(found),
        )
    )
    return document("Back-test of auto-scale policies", body)


def _faults(found: Comparison) -> Iterator[str]:
    faults = [("policy", found.policy_faults), ("topic", found.topic_faults)]
    if not any(each for _, each in faults):
        return
    yield '<div class="verdict violated"><b>Not all could be used</b></div><ul>'
    for kind, each in faults:
        for name, why in list(each.items())[:_LISTED_MAX]:
            yield f"<li>{kind} <code>{escape(name)}</code>: {escape(why)}</li>"
        if len(each) > _LISTED_MAX:
            yield f"<li>and {len(each) - _LISTED_MAX:,} more</li>"
    yield "</ul>"


def _policies(found: Comparison) -> Iterator[str]:
    yield "<h2>Policies side by side</h2><table><tr><th>policy"
    yield "".join(f"<th class=n>{escape(name)}" for name in HEAD) + "</tr>"
    for name in found.policies:
        total = found.total(name)
        yield f"<tr><td><code>{escape(name)}</code>"
        yield "".join(f"<td class=n>{cell}" for cell in cells(total)) + "</tr>"
    yield "</table><table><tr><th>policy<th>done for<th>blocked by</tr>"
    for name in found.policies:
        total = found.total(name)
        yield f"<tr><td><code>{escape(name)}</code><td>{escape(counted(total.actions))}"
        yield f"<td>{escape(lasted(total.blocked_s))}</tr>"
    yield "</table>"


def _plots(found: Comparison) -> Iterator[str]:
    bins = found.bins
    colour_of = colours(list(found.policies))
    load = [sum(values) for values in zip(*(topic.load for topic in found.topics), strict=True)]
    yield "<h2>Load of all topics</h2><p>Messages in per second.</p>"
    yield lines({"load": load}, bins, {"load": _LOAD_COLOUR}, unit="msg/s")
    yield "<h2>Segments of all topics</h2>"
    yield legend(colour_of)
    segments = {
        name: [
            sum(values)
            for values in zip(
                *(segments_over_time(topic, name, bins) for topic in found.topics), strict=True
            )
        ]
        for name in found.policies
    }
    yield lines(segments, bins, colour_of, unit="segments")
    busiest = found.busiest(_PLOTTED_MAX)
    if len(found.topics) > 1:
        yield f"<h2>The {len(busiest)} topics with which most was done</h2>"
        yield "<p>Load in messages per second, and the threshold at which the first policy splits "
        yield f"one segment; segments under each policy.</p>{legend(colour_of)}"
        for topic in busiest:
            yield from _topic_plots(found, topic, colour_of)


def _topic_plots(found: Comparison, topic: TopicResult, colour_of: dict[str, str]) -> Iterator[str]:
    first = next(iter(found.policies.values()))
    segments = {name: segments_over_time(topic, name, found.bins) for name in found.policies}
    yield f"<h2><code>{escape(topic.topic)}</code></h2>"
    yield '<div class="pair"><div>'
    yield lines(
        {"load": topic.load},
        found.bins,
        {"load": _LOAD_COLOUR},
        unit="msg/s",
        width=_HALF,
        level=first.split_msg_rate_in_threshold,
    )
    yield "</div><div>"
    yield lines(segments, found.bins, colour_of, unit="segments", width=_HALF)
    yield "</div></div>"


def _topics(found: Comparison) -> Iterator[str]:
    busiest = found.busiest(_LISTED_MAX)
    rest = len(found.topics) - len(busiest)
    yield "<h2>By topic</h2>"
    if rest:
        yield f"<p>The {len(busiest)} with which most was done; the JSON has all.</p>"
    yield "<table><tr><th>topic<th>policy"
    yield "".join(f"<th class=n>{escape(name)}" for name in HEAD) + "</tr>"
    for topic in busiest:
        for name in found.policies:
            figures = outcome_of(topic, name).figures
            yield f"<tr><td><code>{escape(topic.topic)}</code><td>{escape(name)}"
            yield "".join(f"<td class=n>{cell}" for cell in cells(figures)) + "</tr>"
    yield "</table>"


def _model(found: Comparison) -> Iterator[str]:
    yield "<h2>What was assumed</h2><table>"
    for name, value in found.model.items():
        yield f"<tr><td>{escape(name)}<td>{escape(str(value))}</tr>"
    yield "</table>"
    worked_out = sum(found.total(name).worked_out for name in found.policies)
    evaluations = sum(found.total(name).evaluations for name in found.policies)
    yield f"<p>{evaluations:,} evaluations in {duration(found.seconds)}, of which {worked_out:,} "
    yield "could differ from the one before.</p>"
