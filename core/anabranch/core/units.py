"""The service-unit state machine, defined once, as a table (seed 004, "Bundle State Lifecycles").

A service unit is anything that exactly one broker may own: a bundle, and cluster leadership. A
record names a *move*; an arrow of this table says from which states the move may start, where it
leads, which guards must hold and whom the unit then names. Everything that affects a transition is
in this file: the `transitions` machine and its picture, the lookup table of the hot path and the
Spark replay are all made from `ARROWS`.

`broker` and `source` read as follows. OWNED, SPLITTING: the owner. RELEASING: the destination, or
nobody, and the owner, which serves on until it has logged that it stopped. ASSIGNING: the broker
that shall own, and a former holder that was overridden and may not know it yet (else nobody).
There is no "force" bit: what the leader may do beyond an owner are moves of their own, guarded by
its epoch.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.machines import compile_arrows

LEADERSHIP: Final = "leadership"  # the unit whose owner leads; its version is the leader's epoch


@unique
class UnitState(IntEnum):
    """States; the numbers are stored, never reused."""

    INIT = 0  # unknown to the log: before creation and after the tombstone
    FREE = 1
    ASSIGNING = 2
    OWNED = 3
    RELEASING = 4
    SPLITTING = 5
    DELETED = 6


@unique
class Move(IntEnum):
    """Arrows' names; the numbers are stored, never reused."""

    CREATE = 0  # never proposed on its own: namespaces and splits create their bundles
    ASSIGN = 1
    OWN = 2
    RELEASE = 3
    HAND_OVER = 4
    FREE = 5
    SPLIT = 6
    SPLIT_COMMIT = 7
    TOMBSTONE = 8
    RECLAIM = 9  # leader: from a broker whose session is over
    DISCARD = 10  # leader: the same, when no broker is left to take the unit
    OVERRIDE = 11  # leader: from a live broker that is stuck, which must see this first
    ELECT = 12
    SUCCEED = 13
    RESIGN = 14


@unique
class Guard(IntEnum):
    """Conditions an arrow can ask for; `guards.py` holds one predicate for each."""

    LEADER = 1  # the record's epoch is the epoch of the leader, who is the actor
    TARGET_NAMED = 2  # the record's broker has an open session
    NO_TARGET = 3  # the unit has no destination
    TARGET_OR_NONE = 4  # TARGET_NAMED, unless the record names nobody
    TARGET_IS_OTHER = 5  # the record's broker is not already the owner
    UNIT_HAS_TARGET = 6
    ACTOR_IS_BROKER = 7
    ACTOR_IS_SOURCE = 8
    HOLDER_GONE = 9  # the session of the responsible broker is over
    SOURCE_SETTLED = 10  # an overridden holder has seen that it no longer is one
    CHILDREN_TILE = 11  # the record's children tile the unit's range
    CHILDREN_NEW = 12  # no child exists yet


@unique
class Take(IntEnum):
    """Where a field of the next state comes from."""

    NOBODY = 0
    KEEP = 1
    RECORD = 2  # the record's broker
    ACTOR = 3
    BROKER = 4  # the unit's broker before the move
    UNSETTLED = 5  # the source, where it still marks an overridden holder (FREE, ASSIGNING)
    HOLDER = 6  # who may act as owner before the move, or else as UNSETTLED


class Arrow(msgspec.Struct, frozen=True):
    """One row: from any of `starts` by `move` to `end`, if all guards hold, checked in order."""

    move: Move
    starts: tuple[UnitState, ...]
    end: UnitState
    guards: tuple[Guard, ...]
    broker: Take
    source: Take


_S, _G, _T = UnitState, Guard, Take
_LIVE = (_S.ASSIGNING, _S.OWNED, _S.RELEASING, _S.SPLITTING)

ARROWS: Final[tuple[Arrow, ...]] = (
    Arrow(Move.ASSIGN, (_S.FREE,), _S.ASSIGNING, (_G.TARGET_NAMED,), _T.RECORD, _T.UNSETTLED),
    Arrow(
        Move.OWN,
        (_S.ASSIGNING,),
        _S.OWNED,
        (_G.ACTOR_IS_BROKER, _G.SOURCE_SETTLED),
        _T.KEEP,
        _T.NOBODY,
    ),
    Arrow(
        Move.RELEASE,
        (_S.OWNED,),
        _S.RELEASING,
        (_G.TARGET_OR_NONE, _G.TARGET_IS_OTHER),
        _T.RECORD,
        _T.BROKER,
    ),
    Arrow(
        Move.HAND_OVER,
        (_S.RELEASING,),
        _S.ASSIGNING,
        (_G.UNIT_HAS_TARGET, _G.ACTOR_IS_SOURCE),
        _T.KEEP,
        _T.NOBODY,
    ),
    Arrow(
        Move.FREE,
        (_S.RELEASING,),
        _S.FREE,
        (_G.NO_TARGET, _G.ACTOR_IS_SOURCE),
        _T.NOBODY,
        _T.NOBODY,
    ),
    Arrow(Move.SPLIT, (_S.OWNED,), _S.SPLITTING, (_G.CHILDREN_TILE,), _T.KEEP, _T.NOBODY),
    Arrow(
        Move.SPLIT_COMMIT,
        (_S.SPLITTING,),
        _S.DELETED,
        (_G.ACTOR_IS_BROKER, _G.CHILDREN_NEW),
        _T.NOBODY,
        _T.NOBODY,
    ),
    Arrow(Move.TOMBSTONE, (_S.DELETED,), _S.INIT, (_G.LEADER,), _T.NOBODY, _T.NOBODY),
    Arrow(
        Move.RECLAIM,
        _LIVE,
        _S.ASSIGNING,
        (_G.LEADER, _G.TARGET_NAMED, _G.HOLDER_GONE),
        _T.RECORD,
        _T.UNSETTLED,
    ),
    Arrow(Move.DISCARD, _LIVE, _S.FREE, (_G.LEADER, _G.HOLDER_GONE), _T.NOBODY, _T.UNSETTLED),
    Arrow(
        Move.OVERRIDE,
        (_S.ASSIGNING, _S.RELEASING, _S.SPLITTING),
        _S.ASSIGNING,
        (_G.LEADER, _G.TARGET_NAMED),
        _T.RECORD,
        _T.HOLDER,
    ),
)

LEADERSHIP_ARROWS: Final[tuple[Arrow, ...]] = (
    Arrow(Move.ELECT, (_S.INIT, _S.FREE), _S.OWNED, (), _T.ACTOR, _T.NOBODY),
    Arrow(Move.SUCCEED, (_S.OWNED,), _S.OWNED, (_G.HOLDER_GONE,), _T.ACTOR, _T.NOBODY),
    Arrow(Move.RESIGN, (_S.OWNED,), _S.FREE, (_G.ACTOR_IS_BROKER,), _T.NOBODY, _T.NOBODY),
)


# Before Python 3.12 an enum's member is looked up by a function; the audit asks for every holder.
_OWNED, _RELEASING, _SPLITTING = UnitState.OWNED, UnitState.RELEASING, UnitState.SPLITTING


class Unit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the log says of one unit; `since_*` is the log's place of the last accepted move."""

    state: UnitState
    broker: str
    source: str
    version: int
    move: Move
    since_ms: int
    since_offset: int
    proposal_id: str
    children: tuple[str, ...] = ()

    @property
    def holder(self) -> str:
        """Who may act as owner now: nobody while the unit is FREE or ASSIGNING."""
        state = self.state
        if state is _OWNED or state is _SPLITTING:
            return self.broker
        return self.source if state is _RELEASING else ""

    @property
    def responsible(self) -> str:
        """Whose silence makes this unit an orphan: its holder, or the broker it is assigned to."""
        return self.broker if self.state is UnitState.ASSIGNING else self.holder


IN_FLIGHT: Final = (UnitState.ASSIGNING, UnitState.RELEASING, UnitState.SPLITTING)
UNSETTLED: Final = (*IN_FLIGHT, UnitState.DELETED)  # what a clean-up may have to look at


BUNDLE_TABLE: Final = compile_arrows(ARROWS)
LEADERSHIP_TABLE: Final = compile_arrows(LEADERSHIP_ARROWS)
