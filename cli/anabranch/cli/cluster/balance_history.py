"""`anabranch balance history`: the load balancer's past moves, as the log tells them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from anabranch.cli.cluster.log import LogLine, lines
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.flags import setting_flags, settings_of
from anabranch.cli.shared.output import table, write_json
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import AUTOMATIC, UnitMove
from anabranch.core.log.verdicts import Verdict

_APART_MS: Final = 5_000  # entries within so long belong to one cycle


class AutomaticMove(msgspec.Struct, frozen=True, rename="camel"):
    """A move or split that the balancer decided on by itself, with its effect.

    `deviation`: that of the brokers' loads at the decision. `predicted`: the expected one after
    this move. `observed`: the one that the next cycle with a move found. None: not known. `rule`:
    the same as that of `Grounds`.
    """

    offset: int
    timestamp_ms: int
    move: str
    bundle: str
    to: str
    reason: str
    deviation: float | None
    predicted: float | None
    observed: float | None
    rule: str = ""


@click.command(cls=Command)
@setting_flags
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    help="First offset of the log to look at; the oldest there is if left.",
)
@json_option
def history(start: str | None, as_json: bool, **given: Any) -> None:
    """List the balancer's moves and splits, with reasons, from the log.

    OBSERVED is the deviation of the brokers' loads that the next cycle with a move found.

    Example: anabranch balance history --bootstrap-servers localhost:9092
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
    """Returns the balancer's accepted decisions with their effects, in the log's order."""
    found: list[AutomaticMove] = []
    observed: float | None = None  # the deviation that later cycles found
    first: float | None = None  # the deviation that this cycle found, as far as read
    later_ms: int | None = None
    for each, record in reversed([(each, each.record) for each in log]):
        if not isinstance(record, UnitMove) or not _is_decision(record, each.verdict):
            continue
        if later_ms is not None and later_ms - each.timestamp_ms >= _APART_MS:
            observed, first = observed if first is None else first, None
        later_ms = each.timestamp_ms
        grounds = record.choice[0] if record.choice else None
        deviation = None if grounds is None else _known(grounds.deviation)
        first = first if deviation is None else deviation
        found.append(
            AutomaticMove(
                offset=each.offset,
                timestamp_ms=each.timestamp_ms,
                move=record.move.name,
                bundle=record.unit,
                to=record.broker or ", ".join(record.children),
                reason=record.cause.name,
                deviation=deviation,
                predicted=None if grounds is None else _known(grounds.predicted),
                observed=observed,
                rule="" if grounds is None else grounds.rule,
            )
        )
    return found[::-1]


def _is_decision(record: UnitMove, verdict: Verdict | None) -> bool:
    """Tells whether the balancer decided the move or split by itself, and the log took it."""
    is_accepted = verdict is Verdict.ACCEPTED
    return is_accepted and record.cause in AUTOMATIC and record.move in (Move.RELEASE, Move.SPLIT)


def _known(share: float) -> float | None:
    return share if share >= 0 else None


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"
