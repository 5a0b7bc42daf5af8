"""The comparison of settings as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

import msgspec

from anabranch.spark_replay.backtest.table import counted, duration
from anabranch.spark_replay.balance.outcome import BalanceComparison, BalanceOutcome, differing
from anabranch.spark_replay.balance.table import (
    FIGURES,
    broker_cells,
    cycles_in_words,
    figure_cells,
    span_in_words,
)
from anabranch.spark_replay.report.charts import colours, instant, legend, lines
from anabranch.spark_replay.report.document import document

_TITLE: Final = "Back-test of the load balancer"
_LISTED_MAX: Final = 40
_PLOTTED_MAX: Final = 7


def page(found: BalanceComparison) -> str:
    """A self-contained HTML page."""
    body = "".join(
        (
            f"<h1>{_TITLE}</h1>",
            f"<p>{escape(found.recording)}: {escape(span_in_words(found))}.</p>",
            *_left_out(found),
            *_settings(found),
            *_plot(found),
            *_moves(found),
            *_brokers(found),
            *_model(found),
        )
    )
    return document(_TITLE, body)


def _left_out(found: BalanceComparison) -> Iterator[str]:
    if not found.faults:
        return
    yield '<div class="verdict violated"><b>Not all could be used</b></div><ul>'
    for name, why in found.faults.items():
        yield f"<li>settings <code>{escape(name)}</code>: {escape(why)}</li>"
    yield "</ul>"


def _settings(found: BalanceComparison) -> Iterator[str]:
    yield "<h2>Settings side by side</h2>"
    yield "<p>Deviation: of the brokers' true loads, 1 being full.</p>"
    yield "<table><tr><th>settings" + "".join(f"<th class=n>{escape(name)}" for name in FIGURES)
    yield "</tr>"
    for each in found.outcomes:
        yield f"<tr><td><code>{escape(each.name)}</code>"
        yield "".join(f"<td class=n>{cell}" for cell in figure_cells(each.figures)) + "</tr>"
    yield "</table><table><tr><th>settings<th>differ by<th>moved for<th>cycles</tr>"
    for each in found.outcomes:
        own = msgspec.json.encode(differing(found.settings[each.name])).decode()
        yield f"<tr><td><code>{escape(each.name)}</code><td><code>{escape(own)}</code>"
        yield f"<td>{escape(counted(each.figures.reasons))}"
        yield f"<td>{escape(cycles_in_words(each.figures))}</tr>"
    yield "</table>"


def _plot(found: BalanceComparison) -> Iterator[str]:
    shown = found.outcomes[:_PLOTTED_MAX]
    colour_of = colours([each.name for each in shown])
    first = found.settings[found.outcomes[0].name]
    yield "<h2>Deviation over time</h2>"
    if len(found.outcomes) > len(shown):
        yield f"<p>Of the first {len(shown)} settings; the JSON has all.</p>"
    yield f"<p>The line is the first settings' target.</p>{legend(colour_of)}"
    yield lines(
        # An axis reaches to 4 at least: so in percent.
        {each.name: [100 * value for value in each.deviations] for each in shown},
        found.bins,
        colour_of,
        unit="percent",
        level=100 * first.broker_load_target_std,
    )


def _moves(found: BalanceComparison) -> Iterator[str]:
    for each in found.outcomes:
        if each.log:
            yield from _moves_of(each)


def _moves_of(outcome: BalanceOutcome) -> Iterator[str]:
    yield f"<h2>Moves under <code>{escape(outcome.name)}</code></h2>"
    if outcome.figures.moves > _LISTED_MAX:
        yield f"<p>The first {_LISTED_MAX} of {outcome.figures.moves:,}.</p>"
    yield "<table><tr><th>time<th>bundle<th>from<th>to<th>reason<th class=n>deviation"
    yield "<th class=n>predicted<th></tr>"
    for move in outcome.log[:_LISTED_MAX]:
        yield f"<tr><td>{instant(move.at_ms, 1_000)}<td><code>{escape(move.bundle)}</code>"
        yield f"<td>{escape(move.source)}<td>{escape(move.destination)}<td>{escape(move.reason)}"
        yield f"<td class=n>{move.before:.3f}<td class=n>{move.predicted:.3f}"
        yield f"<td>{'goes back' if move.flaps else ''}</tr>"
    yield "</table>"


def _brokers(found: BalanceComparison) -> Iterator[str]:
    yield "<h2>What brokers can carry</h2>"
    yield "<table><tr><th>broker<th>use<th class=n>full at<th class=n>off its line</tr>"
    for broker, model in list(found.brokers.items())[:_LISTED_MAX]:
        source, full, error = broker_cells(model)
        yield f"<tr><td>{escape(broker)}<td>{source}<td class=n>{full}<td class=n>{error}</tr>"
    yield "</table>"
    if len(found.brokers) > _LISTED_MAX:
        yield f"<p>and {len(found.brokers) - _LISTED_MAX:,} more; the JSON has all.</p>"


def _model(found: BalanceComparison) -> Iterator[str]:
    yield "<h2>What was assumed</h2><table>"
    for name, value in found.model.items():
        yield f"<tr><td>{escape(name)}<td>{value:g}</tr>"
    yield f"</table><p>Replayed in {duration(found.seconds)}.</p>"
