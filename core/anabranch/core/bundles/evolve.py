"""The changes of service units by records (PIP-192, "Conflict State Resolution")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.core.bundles.guards import child_names
from anabranch.core.bundles.machine import BUNDLES, LEADING, FieldSource, UnitArrow
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.conflicts import first_version, may_propose, unfit_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import UnitMove
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.state_machine import Case
from anabranch.core.log.verdicts import Verdict

_BUNDLES: Final = BUNDLES.table
_LEADING: Final = LEADING.table


def evolve_unit(state: StateReader, record: UnitMove, offset: int, timestamp_ms: int) -> Outcome:
    """Judges one move of a bundle or of the leadership."""
    if state.cluster() is None:
        return REJECTED[Verdict.NO_CLUSTER]
    name = record.unit
    unit = state.unit(name)
    cases = _BUNDLES
    if name == LEADERSHIP:
        cases = _LEADING
        unit = unit or _NO_LEADER
    elif unit is None:
        return REJECTED[Verdict.UNKNOWN_UNIT]
    if record.version != unit.version + 1:
        repeated = record.proposal_id == unit.proposal_id
        return REJECTED[unfit_version(unit.version, record.version, repeated)]
    case = cases.get((unit.state, record.move))
    if case is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    if not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    for holds, reason in case.checks:
        if not holds(state, unit, record):
            return REJECTED[reason]
    after = _moved(unit, case, record, offset, timestamp_ms)
    if case.end is _DELETED:
        after_split = born(UnitState.OWNED, unit.broker, record.proposal_id, offset, timestamp_ms)
        children: tuple[Change, ...] = tuple(
            (child, after_split) for child in child_names(name, unit.children)
        )
        return Outcome(_ACCEPTED, ((name, after), *children))
    return Outcome(_ACCEPTED, ((name, after),))


_NO_LEADER: Final = Unit(UnitState.INIT, "", "", 0, Move.CREATE, 0, -1, "")


def _settled(unit: Unit) -> str:
    """Returns the holder that has yet to settle; only a unit without a holder has such a source."""
    return "" if unit.holder else unit.source


_TAKES: Final[dict[FieldSource, Callable[[Unit, UnitMove, str], str]]] = {
    FieldSource.NOBODY: lambda unit, record, kept: "",
    FieldSource.KEEP: lambda unit, record, kept: kept,
    FieldSource.RECORD: lambda unit, record, kept: record.broker,
    FieldSource.ACTOR: lambda unit, record, kept: record.actor,
    FieldSource.BROKER: lambda unit, record, kept: unit.broker,
    FieldSource.HOLDER: lambda unit, record, kept: unit.holder or _settled(unit),
    FieldSource.UNSETTLED: lambda unit, record, kept: _settled(unit),
}
# An enum's member is looked up by a function before Python 3.12; the fold meets these each time.
_ACCEPTED: Final = Verdict.ACCEPTED
_INIT, _SPLITTING, _DELETED = UnitState.INIT, UnitState.SPLITTING, UnitState.DELETED


def _moved(
    unit: Unit,
    case: Case[UnitArrow, UnitState],
    record: UnitMove,
    offset: int,
    timestamp_ms: int,
) -> Unit | None:
    end, arrow = case.end, case.row
    if end is _INIT:
        return None
    children: tuple[str, ...] = ()
    if end is _SPLITTING:
        children = record.children
    elif end is _DELETED:
        children = unit.children
    return Unit(
        end,
        _TAKES[arrow.broker](unit, record, unit.broker),
        _TAKES[arrow.source](unit, record, unit.source),
        record.version,
        record.move,
        timestamp_ms,
        offset,
        record.proposal_id,
        children,
    )


def born(state: UnitState, broker: str, proposal_id: str, offset: int, timestamp_ms: int) -> Unit:
    """A unit that did not exist."""
    version = first_version(offset)
    return Unit(state, broker, "", version, Move.CREATE, timestamp_ms, offset, proposal_id)
