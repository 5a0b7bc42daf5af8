"""The service-unit state machine, defined once, as a table (PIP-192, "Bundle State Lifecycles").

A record names a *move*. An arrow says the states that the move may start from, the state it leads
to, the guards that must hold, and the brokers that the unit then names. Everything that affects a
transition is in its row. The `transitions` machine and its picture, the lookup of the hot path and
the Spark replay are all made from these rows.
"""

from __future__ import annotations

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
)
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.log.state_machine import StateMachine


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
