"""`Session`: what the log keeps of one broker; `machine` says how a session begins and ends."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


@unique
class SessionState(IntEnum):
    """The states of a broker's session."""

    NONE = 0  # the broker has never had one
    OPEN = 1
    OVER = 2


class Session(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last word on a broker's session; while open, `version` is the session's number."""

    version: int
    open: bool
    since_ms: int
    since_offset: int
    proposal_id: str

    @property
    def state(self) -> SessionState:
        """OPEN or OVER: what is stored is no NONE."""
        return SessionState.OPEN if self.open else SessionState.OVER
