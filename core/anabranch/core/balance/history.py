"""The balancer's past actions, as the log tells them, and their effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from anabranch.core.entities.unit import Move
from anabranch.core.log.records import AUTOMATIC, Record, UnitMove
from anabranch.core.log.verdicts import Verdict

_APART_MS: Final = 5_000  # entries within so long belong to one cycle


class LoggedMove(msgspec.Struct, frozen=True):
    """A move or split that the balancer decided on by itself, where and when it is in the log."""

    offset: int
    timestamp_ms: int
    record: UnitMove


class AutomaticMove(msgspec.Struct, frozen=True, rename="camel"):
    """A logged move with its effect.

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


def logged_move(
    offset: int, timestamp_ms: int, record: Record | None, verdict: Verdict | None
) -> LoggedMove | None:
    """The entry of the log, if it is a decision of the balancer that was accepted."""
    if (
        isinstance(record, UnitMove)
        and record.cause in AUTOMATIC
        and record.move in (Move.RELEASE, Move.SPLIT)
        and verdict is Verdict.ACCEPTED
    ):
        return LoggedMove(offset, timestamp_ms, record)
    return None


def automatic_moves(logged: Iterable[LoggedMove]) -> list[AutomaticMove]:
    """Each move with its effect, in the log's order."""
    found: list[AutomaticMove] = []
    observed: float | None = None  # the deviation that later cycles found
    first: float | None = None  # the deviation that this cycle found, as far as read
    later_ms: int | None = None
    for each in reversed(list(logged)):
        record = each.record
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


def _known(share: float) -> float | None:
    return share if share >= 0 else None
