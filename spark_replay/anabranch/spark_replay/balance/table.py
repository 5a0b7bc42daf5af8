"""The comparison of settings on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.core.log.grounds import BUILT_IN
from anabranch.spark_replay.backtest.table import counted, duration
from anabranch.spark_replay.balance.brokers import BrokerModel
from anabranch.spark_replay.balance.outcome import BalanceComparison, BalanceFigures
from anabranch.spark_replay.report.summary import clock

FIGURES: Final = (
    *("moves", "bundles", "again", "flaps", "start", "mean", "end", "below target after"),
    *("above target", "above first's"),
)
_BROKERS_MAX: Final = 20


def table(found: BalanceComparison) -> str:
    """Writes each setting's figures, why it moved bundles, and how well brokers are explained."""
    return "\n".join([*_head(found), "", *_figures(found), "", *_why(found), "", *_brokers(found)])


def figure_cells(figures: BalanceFigures) -> tuple[str, ...]:
    """Returns the cells in the order of `FIGURES`."""
    after = figures.until_below_s
    return (
        f"{figures.moves:,}",
        f"{figures.bundles_moved:,}",
        f"{figures.moved_again:,}",
        f"{figures.flaps:,}",
        f"{figures.deviation_start:.3f}",
        f"{figures.deviation_mean:.3f}",
        f"{figures.deviation_end:.3f}",
        "never" if after is None else duration(after),
        duration(figures.above_s),
        duration(figures.above_first_s),
    )


def span_in_words(found: BalanceComparison) -> str:
    """Returns what was replayed."""
    begin_ms, end_ms = found.span
    return (
        f"{found.bundles:,} bundles on {len(found.brokers):,} brokers, {clock(begin_ms)} to "
        f"{clock(end_ms)}"
    )


def broker_cells(model: BrokerModel) -> tuple[str, str, str]:
    """Where a broker's model comes from, when it is full, and how far off its line is."""
    full = model.capacity
    return (
        f"{model.measured:,} measurements" if model.measured else "as given",
        "never" if math.isinf(full) else f"{full / 1e6:,.3g} MB/s",
        f"{model.error:.1%}" if model.measured else "-",
    )


def cycles_in_words(figures: BalanceFigures) -> str:
    """Returns how many cycles there were, and why they decided no more."""
    return (
        f"{figures.cycles:,} cycles, {figures.acting:,} of which moved something; they ended with: "
        f"{counted(figures.ended)}"
    )


def _head(found: BalanceComparison) -> Iterator[str]:
    yield f"{found.recording}: {span_in_words(found)}"
    yield ", ".join(f"{name} {value:g}" for name, value in found.model.items())
    yield f"{len(found.settings)} settings in {found.seconds:.1f} s"


def _figures(found: BalanceComparison) -> Iterator[str]:
    rows = [(each.name, *figure_cells(each.figures)) for each in found.outcomes]
    yield from _columns(("settings", *FIGURES), rows)


def _why(found: BalanceComparison) -> Iterator[str]:
    for each in found.outcomes:
        yield f"{each.name}: moved for {counted(each.figures.reasons)}"
        yield f"  {cycles_in_words(each.figures)}"
        if each.figures.decided_by.keys() - {BUILT_IN}:
            yield f"  decided by {counted(each.figures.decided_by)}"
        for fault, cycles in each.figures.faults.items():
            yield f"  in {cycles:,} cycles {fault}"


def _brokers(found: BalanceComparison) -> Iterator[str]:
    shown = list(found.brokers.items())[:_BROKERS_MAX]
    rows = [(broker, *broker_cells(model)) for broker, model in shown]
    yield from _columns(("broker", "use", "full at", "off its line"), rows)
    if len(found.brokers) > len(shown):
        yield f"and {len(found.brokers) - len(shown):,} more (all are in the JSON)"
    yield ""


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names to the left, figures to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        first, *rest = (cell for cell in row)
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()
