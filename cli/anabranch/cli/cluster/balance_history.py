"""`anabranch balance history`: the load balancer's past moves, as the log tells them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from anabranch.cli.cluster.log import LogLine, lines
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.flags import setting_flags, settings_of
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
from anabranch.core.balance.history import AutomaticMove, automatic_moves, logged_move


@click.command(epilog="Example: anabranch balance history --bootstrap-servers localhost:9092")
@setting_flags
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    help="First offset of the log to look at; the oldest there is if left.",
)
@json_option
@watchable
def history(start: str | None, as_json: bool, **given: Any) -> None:
    """List the balancer's moves and splits, with reasons, from the log.

    OBSERVED is the deviation of the brokers' loads that the next cycle with a move found.
    """
    found = moves_of(lines(settings_of(**given), start, follow=False))
    if as_json:
        write_json(found)
        return
    rows = [
        (
            datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            each.bundle,
            each.move,
            each.to or "-",
            each.reason,
            *(_shown(share) for share in (each.deviation, each.predicted, each.observed)),
        )
        for each in found
    ]
    head = ("TIME", "BUNDLE", "MOVE", "TO", "REASON", "DEVIATION", "PREDICTED", "OBSERVED")
    table(head, rows)


def moves_of(log: Iterable[LogLine]) -> list[AutomaticMove]:
    """Returns the accepted records of the balancer, in the log's order."""
    logged = (
        logged_move(shown.offset, shown.timestamp_ms, shown.record, shown.verdict) for shown in log
    )
    return automatic_moves(each for each in logged if each is not None)


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"
