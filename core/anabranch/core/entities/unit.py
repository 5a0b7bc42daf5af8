"""Service units (PIP-192): a bundle or cluster leadership, which exactly one broker may own.

`bundles.machine` says their moves. `broker` and `source` depend on the state. OWNED, SPLITTING:
`broker` is the owner. RELEASING: `broker` is the destination, or nobody. `source` is the owner,
which serves on until it has logged that it stopped. ASSIGNING: `broker` is the broker that shall
own. `source` is a former holder that was overridden and may not know it yet (else nobody). There is
no "force" bit: the leader's further powers are moves of their own, guarded by its epoch.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import msgspec

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


# Before Python 3.12 an enum's member is looked up by a function; the audit asks for every holder.
_OWNED, _RELEASING, _SPLITTING = UnitState.OWNED, UnitState.RELEASING, UnitState.SPLITTING


class Unit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log's entry for one unit; `since_*` is the log's place of the last accepted move."""

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
        """Returns the broker that may act as owner now; "" while the unit is FREE or ASSIGNING."""
        state = self.state
        if state is _OWNED or state is _SPLITTING:
            return self.broker
        return self.source if state is _RELEASING else ""

    @property
    def responsible(self) -> str:
        """The broker whose silence makes this unit an orphan: its holder, or the broker it is
        assigned to.
        """
        return self.broker if self.state is UnitState.ASSIGNING else self.holder


IN_FLIGHT: Final = (UnitState.ASSIGNING, UnitState.RELEASING, UnitState.SPLITTING)
UNSETTLED: Final = (*IN_FLIGHT, UnitState.DELETED)  # a clean-up may have to look at these
