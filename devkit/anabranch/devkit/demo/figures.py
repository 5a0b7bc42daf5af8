"""What the demo says at its end: how long things took, what was refused, what was wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from anabranch.broker.cli.shared.output import table
from anabranch.devkit.demo.history import History
from anabranch.devkit.demo.lookups import LookupClients, LookupSample
from anabranch.devkit.demo.messages import Checked
from anabranch.devkit.demo.reshape import Reshaping
from anabranch.devkit.demo.scenario import Crash, Scenario
from anabranch.devkit.demo.traffic import Traffic

_WRONG_SHOWN: Final = 5


def say_figures(
    clients: LookupClients,
    scenario: Scenario,
    reshaping: Reshaping,
    traffic: Traffic,
    history: History,
    wrong: Sequence[LookupSample],
) -> None:
    """Durations, counts, and the look-ups that failed or were wrong."""
    click.echo("\nhow long it took (by the log's clock, unless said otherwise)")
    rows = [
        _figure("hand-over of a bundle: release to next owner", history.hand_overs_ms),
        _figure("transfer: request until every node answers so (client)", scenario.agreed_ms),
        *(_fail_over(crash, history) for crash in scenario.crashes),
        _figure("look-up (client)", [one.answered_ms - one.sent_ms for one in clients.answered]),
        _figure("split, merge, rebucket: request to answer (client)", reshaping.done_ms),
        _figure("message: sent to acknowledged (client)", traffic.ack_ms),
        _figure("message: sent to received, stream (client)", traffic.receive_ms),
        _figure("message: sent to received, queue (client)", traffic.queue_ms),
    ]
    table(("WHAT", "COUNT", "P50 ms", "MAX ms"), rows)
    changes = ", ".join(f"{count} {kind}" for kind, count in scenario.done.items())
    reshaped = ", ".join(f"{count} {kind}" for kind, count in reshaping.kinds.items())
    rejected = history.records - history.verdicts["ACCEPTED"]
    click.echo(f"\nchanges by request: {changes}; refused: {len(scenario.refused)}")
    for refusal in scenario.refused:
        click.echo(f"  refused: {refusal}")
    click.echo(f"segments: {reshaped}; refused: {_counted(reshaping.refused)}")
    click.echo(f"log records: {history.records}, of which {rejected} were rejected")
    click.echo(
        f"look-ups: {len(clients.answered)} answered, {len(clients.failed)} failed, {len(wrong)} "
        f"wrong, {sum(one.stale for one in clients.answered)} marked stale; tried again at another "
        f"node: {_counted(clients.refused)}"
    )
    for failure in clients.failed[:_WRONG_SHOWN]:
        click.echo(f"  failed: {failure}")
    for one in wrong[:_WRONG_SHOWN]:
        click.echo(f"  WRONG: {one.topic} is not with {one.broker} at {one.answered_ms:.0f}")


def _fail_over(crash: Crash, history: History) -> tuple[str, str, str, str]:
    waits = history.taken_over_ms(crash.broker, crash.at_ms)
    return _figure(f"fail-over: SIGKILL of {crash.what} to next owner", waits)


def _figure(what: str, values: Sequence[float]) -> tuple[str, str, str, str]:
    if not values:
        return what, "0", "-", "-"
    return what, str(len(values)), f"{statistics.median(values):.1f}", f"{max(values):.1f}"


def say_checked(checked: Checked) -> None:
    """The check of all messages, with examples of what is wrong."""
    for what, found in checked.checks.items():
        first, *more = found.lines()
        click.echo(f"messages, {what}: {first}")
        for line in more:
            click.echo(line)
    for failure in checked.failed[:_WRONG_SHOWN]:
        click.echo(f"  WRONG: not sent: {failure}")


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} x {why}" for why, count in sorted(reasons.items())) or "none"
