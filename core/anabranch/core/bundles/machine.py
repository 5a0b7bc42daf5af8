"""The service-unit state machine, defined once, as a table (PIP-192, "Bundle State Lifecycles").

A record names a *move*. An arrow says the states that the move may start from, the state it leads
to, the guards that must hold, and the brokers that the unit then names. Everything that affects a
transition is in its row. The `transitions` machine and its picture, the lookup of the hot path and
the Spark replay are all made from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.bundles.guards import (
    ACTOR_IS_BROKER,
    ACTOR_IS_SOURCE,
    CHILDREN_NEW,
    CHILDREN_TILE,
    HOLDER_GONE,
    LEADER,
    NO_TARGET,
    SOURCE_SETTLED,
    TARGET_IS_OTHER,
    TARGET_NAMED,
    TARGET_OR_NONE,
    UNIT_HAS_TARGET,
    UnitGuard,
    child_names,
)
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.conflicts import first_version, may_propose, unfit_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import UnitMove
from anabranch.core.log.state import Change, StateReader
from anabranch.core.log.state_machine import Case, StateMachine
from anabranch.core.log.verdicts import Verdict


@unique
class FieldSource(IntEnum):
    """The source of a field of the next state."""

    NOBODY = 0
    KEEP = 1
    RECORD = 2  # the record's broker
    ACTOR = 3
    BROKER = 4  # the unit's broker before the move
    UNSETTLED = 5  # the source, where it still marks an overridden holder (FREE, ASSIGNING)
    HOLDER = 6  # the possible owner before the move, or else as UNSETTLED


class UnitArrow(msgspec.Struct, frozen=True):
    """One row: from any of `starts` by `move` to `end`, if all guards hold, checked in order."""

    move: Move
    starts: tuple[UnitState, ...]
    end: UnitState
    guards: tuple[UnitGuard, ...]
    broker: FieldSource
    source: FieldSource


_S, _T = UnitState, FieldSource
_LIVE = (_S.ASSIGNING, _S.OWNED, _S.RELEASING, _S.SPLITTING)
_DIVIDES: Final = {_S.SPLITTING: Move.SPLIT, _S.DELETED: Move.SPLIT_COMMIT}  # with children

BUNDLES: Final = StateMachine(
    (
        UnitArrow(Move.ASSIGN, (_S.FREE,), _S.ASSIGNING, (TARGET_NAMED,), _T.RECORD, _T.UNSETTLED),
        UnitArrow(
            Move.OWN,
            (_S.ASSIGNING,),
            _S.OWNED,
            (ACTOR_IS_BROKER, SOURCE_SETTLED),
            _T.KEEP,
            _T.NOBODY,
        ),
        UnitArrow(
            Move.RELEASE,
            (_S.OWNED,),
            _S.RELEASING,
            (TARGET_OR_NONE, TARGET_IS_OTHER),
            _T.RECORD,
            _T.BROKER,
        ),
        UnitArrow(
            Move.HAND_OVER,
            (_S.RELEASING,),
            _S.ASSIGNING,
            (UNIT_HAS_TARGET, ACTOR_IS_SOURCE),
            _T.KEEP,
            _T.NOBODY,
        ),
        UnitArrow(
            Move.FREE,
            (_S.RELEASING,),
            _S.FREE,
            (NO_TARGET, ACTOR_IS_SOURCE),
            _T.NOBODY,
            _T.NOBODY,
        ),
        UnitArrow(Move.SPLIT, (_S.OWNED,), _S.SPLITTING, (CHILDREN_TILE,), _T.KEEP, _T.NOBODY),
        UnitArrow(
            Move.SPLIT_COMMIT,
            (_S.SPLITTING,),
            _S.DELETED,
            (ACTOR_IS_BROKER, CHILDREN_NEW),
            _T.NOBODY,
            _T.NOBODY,
        ),
        UnitArrow(Move.TOMBSTONE, (_S.DELETED,), _S.INIT, (LEADER,), _T.NOBODY, _T.NOBODY),
        UnitArrow(
            Move.RECLAIM,
            _LIVE,
            _S.ASSIGNING,
            (LEADER, TARGET_NAMED, HOLDER_GONE),
            _T.RECORD,
            _T.UNSETTLED,
        ),
        UnitArrow(
            Move.DISCARD,
            _LIVE,
            _S.FREE,
            (LEADER, HOLDER_GONE),
            _T.NOBODY,
            _T.UNSETTLED,
        ),
        UnitArrow(
            Move.OVERRIDE,
            (_S.ASSIGNING, _S.RELEASING, _S.SPLITTING),
            _S.ASSIGNING,
            (LEADER, TARGET_NAMED),
            _T.RECORD,
            _T.HOLDER,
        ),
    ),
    UnitState,
    fits=lambda move, end: _DIVIDES.get(_S(end), move) is move,
)

LEADING: Final = StateMachine(
    (
        UnitArrow(Move.ELECT, (_S.INIT, _S.FREE), _S.OWNED, (), _T.ACTOR, _T.NOBODY),
        UnitArrow(Move.SUCCEED, (_S.OWNED,), _S.OWNED, (HOLDER_GONE,), _T.ACTOR, _T.NOBODY),
        UnitArrow(Move.RESIGN, (_S.OWNED,), _S.FREE, (ACTOR_IS_BROKER,), _T.NOBODY, _T.NOBODY),
    ),
    UnitState,
    fits=lambda move, end: end in (_S.FREE, _S.OWNED),  # it has no children, and its epochs go on
)


# --- the changes by records ------------------------------------------------------------------


_BUNDLES: Final = BUNDLES.table
_LEADING: Final = LEADING.table


def evolve_unit(state: StateReader, record: UnitMove, offset: int, timestamp_ms: int) -> Outcome:
    """Judges one move of a bundle or of the leadership."""
    name = record.unit
    unit = state.unit(name)
    if unit is None:
        if state.cluster() is None:  # which makes the first units
            return REJECTED[Verdict.NO_CLUSTER]
        if name != LEADERSHIP:
            return REJECTED[Verdict.UNKNOWN_UNIT]
        unit = _NO_LEADER
    cases = _LEADING if name == LEADERSHIP else _BUNDLES
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
