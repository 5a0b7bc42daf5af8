"""`anabranch balance`: the loads, the next step of the load balancer, and its past ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from anabranch.admin import Admin, BalanceOutlook, BrokerLoadStats, CycleStats, ExchangeStats
from anabranch.cli.shared.api import answers
from anabranch.cli.shared.command import LazyGroup
from anabranch.cli.shared.output import table
from anabranch.cli.topics.words import count_of
from anabranch.core.autoscale.load import rate_in_words

# It reads the log itself, by the packages of a node.
_LAZY: Final = {
    "history": (
        "cli.cluster.balance_history",
        "List what the balancer moved and split, with reasons.",
    )
}


@click.group(cls=LazyGroup, modules=_LAZY)
def balance() -> None:
    """The load balancer: its loads, its next step and its past ones.

    Example: anabranch balance show
    """


def _broker(each: BrokerLoadStats, at_ms: int) -> tuple[str, ...]:
    movable = str(each.reported_bundles)
    if each.load is None or each.updated_millis is None:
        return (each.broker_id, "-", "-", "-", "-", "-", movable, "-")
    return (
        each.broker_id,
        f"{each.load:.3f}",
        rate_in_words(each.msg_throughput or 0),
        rate_in_words(each.msg_rate or 0),
        str(each.bundles),
        str(each.topics),
        movable,
        f"{_seconds(at_ms - each.updated_millis)} ago",
    )


def _tell(found: BalanceOutlook) -> None:
    """Shows the loads, says how they differ, and tells of the next cycle."""
    head = ("BROKER", "LOAD", "BYTES/S", "MSG/S", "BUNDLES", "TOPICS", "MOVABLE", "MEASURED")
    table(head, [_broker(each, found.at_millis) for each in found.brokers])
    for each in found.brokers:
        if each.ignored:
            click.echo(f"the load of {each.broker_id} takes no part: {each.ignored}")
    click.echo()
    if found.average is None or found.deviation is None:
        click.echo("no load takes part")
    else:
        click.echo(f"mean load {found.average:.3f}, deviation {found.deviation:.3f}")
    click.echo(
        f"there was a reason to move bundles in {count_of(found.hits, 'cycle')} in a row so far"
    )
    if found.prevented:
        click.echo(f"there are no cycles: {found.prevented}")
    for number, cycle in enumerate(found.cycles, 1):
        due = found.next_cycle_millis
        when = "" if due is None else f", in {_seconds(due)}"
        click.echo(f"\ncycle {number}{when}: {_result(cycle)}")
        for line in _lines(cycle, found):
            click.echo(f"  {line}")
        if cycle.unloads:
            _tell_unloads(cycle)


def _result(cycle: CycleStats) -> str:
    if cycle.deviation is None or cycle.predicted is None:
        return "moves nothing"
    deviation = f"deviation {cycle.deviation:.3f}"
    if not cycle.unloads:
        return f"moves nothing; {deviation}"
    moved = count_of(len(cycle.unloads), "bundle")
    return f"moves {moved}; {deviation}, {cycle.predicted:.3f} expected after"


def _lines(cycle: CycleStats, found: BalanceOutlook) -> Iterator[str]:
    """Gives the reasons of the moves, and the reason against more."""
    if cycle.strategy:
        yield f"strategy {cycle.strategy} decides"
    yield from filter(None, (cycle.fault, cycle.thresholds))
    if cycle.condition is not None:
        row = f", in {count_of(cycle.hits, 'cycle')} in a row" if cycle.hits else ""
        yield f"there is a reason to move bundles: {cycle.condition}{row}"
    for exchange in cycle.exchanges:
        yield from _exchange(exchange)
    awaited = f": {', '.join(cycle.awaited)}" if cycle.awaited else ""
    more = "no more" if cycle.unloads else "nothing"
    yield f"{more}, because {cycle.why}{awaited}{_by(cycle.setting, found)}"


def _by(setting: str, found: BalanceOutlook) -> str:
    return f" ({setting}={_text(found.settings[setting])})" if setting else ""


def _exchange(exchange: ExchangeStats) -> Iterator[str]:
    moved, wanted = rate_in_words(exchange.moved), rate_in_words(exchange.wanted)
    at = f" ({exchange.next_bundle})" if exchange.next_bundle else ""
    yield (
        f"{exchange.source} to {exchange.destination}: {moved} of {wanted} bytes/s; "
        f"{exchange.why}{at}"
    )
    for each in exchange.unmoved:
        by = f" ({each.setting})" if each.setting else ""
        yield f"  {each.bundle} stays: {each.why}{by}"


def _tell_unloads(cycle: CycleStats) -> None:
    rows = [
        (
            each.bundle,
            each.source,
            each.destination or "(by look-up)",
            each.reason,
            f"{each.deviation:.3f}",
            f"{each.predicted:.3f}",
        )
        for each in cycle.unloads
    ]
    table(("BUNDLE", "FROM", "TO", "REASON", "DEVIATION", "PREDICTED"), rows)


def _seconds(ms: float) -> str:
    return f"{max(0, round(ms / 1000))} s"


def _text(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.15g}" if isinstance(value, int | float) else value or "nothing"


@balance.command()
@answers(_tell)
def show(admin: Admin) -> BalanceOutlook:
    """Show loads, their deviation, and the next cycle's moves.

    Brokers report these loads themselves. LOAD is the average that decides; 1 means all of a
    resource. MOVABLE counts the bundles that a broker has reported, the highest ones. If the next
    cycle moves nothing, or no more, the output tells the reason, and the setting that it hangs on.

    Example: anabranch balance show
    """
    return admin.balance.get_outlook()
