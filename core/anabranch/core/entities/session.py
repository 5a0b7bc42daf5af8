"""`Session`: the log's entry for one broker; `sessions.machine` says how one begins and ends."""

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
    """The last word on a broker's session; while open, `version` is the session's number.

    `authorizes`: True if its node checks the rights of callers, and is held to it. `superusers`:
    the roles that may do everything by that node's settings.
    """

    version: int
    open: bool
    since_ms: int
    since_offset: int
    proposal_id: str
    authorizes: bool = False
    superusers: tuple[str, ...] = ()

    @property
    def state(self) -> SessionState:
        """OPEN or OVER; a stored session is never NONE."""
        return SessionState.OPEN if self.open else SessionState.OVER
