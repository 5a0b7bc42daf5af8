"""`anabranch balance history`: what the load balancer has done, as the log tells it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from anabranch.broker.cli.cluster.log import LogLine, lines
from anabranch.broker.cli.shared.api import json_option
from anabranch.broker.cli.shared.flags import setting_flags, settings_of
from anabranch.broker.cli.shared.output import table, write_json
from anabranch.broker.cli.shared.watching import watchable
from anabranch.core.bundles.unit import Move
from anabranch.core.log.records import AUTOMATIC, UnitMove
from anabranch.core.log.verdicts import Verdict

_APART_MS: Final = 5_000  # what is logged within so long is of one cycle


class AutomaticMove(msgspec.Struct, frozen=True, rename="camel"):
    """A move or split that the balancer decided on by itself.

    `deviation`: of the brokers' loads when it was decided; `predicted`: as it should be after this
    one; `observed`: as the next cycle that moved anything has found it. None: not known.
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
    """List what the balancer moved and split, with reasons, from the log.

    OBSERVED is the deviation of the brokers' loads that the next cycle found which moved anything.
    """
    found = automatic_moves(lines(settings_of(**given), start, follow=False))
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


def automatic_moves(log: Iterable[LogLine]) -> list[AutomaticMove]:
    """Of the log's records those of the balancer that were accepted, in order."""
    moves = [
        (shown, shown.record)
        for shown in log
        if isinstance(shown.record, UnitMove)
        and shown.record.cause in AUTOMATIC
        and shown.record.move in (Move.RELEASE, Move.SPLIT)
        and shown.verdict is Verdict.ACCEPTED
    ]
    stamps = [shown.timestamp_ms for shown, _ in moves]
    found = []
    for at, (shown, record) in enumerate(moves):
        after = _next_cycle(stamps, at)
        found.append(
            AutomaticMove(
                offset=shown.offset,
                timestamp_ms=shown.timestamp_ms,
                move=record.move.name,
                bundle=record.unit,
                to=record.broker or ", ".join(record.children),
                reason=record.cause.name,
                deviation=_deviation(record),
                predicted=_known(record.choice[0].predicted) if record.choice else None,
                observed=next(
                    (
                        deviation
                        for _, later in moves[after:]
                        if (deviation := _deviation(later)) is not None
                    ),
                    None,
                ),
            )
        )
    return found


def _next_cycle(stamps: Sequence[int], at: int) -> int:
    """Where the first one is that is of a later cycle."""
    for number in range(at + 1, len(stamps)):
        if stamps[number] - stamps[number - 1] >= _APART_MS:
            return number
    return len(stamps)


def _deviation(record: UnitMove) -> float | None:
    return _known(record.choice[0].deviation) if record.choice else None


def _known(share: float) -> float | None:
    return share if share >= 0 else None


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"
