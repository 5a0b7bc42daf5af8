"""`BalanceHistory`: the balancer's latest moves and splits, as this node has read them.

The log has all of them, and `anabranch balance history` reads it. A node keeps the newest part,
from the entry on with which it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from anabranch.broker.runtime import Runtime
from anabranch.core.balance.history import AutomaticMove, LoggedMove, automatic_moves, logged_move
from anabranch.core.log.outcome import Folded

MOVES_MAX: Final = 1_000


class ToldHistory(msgspec.Struct, frozen=True):
    """The newest moves, the oldest of them first; moves before `since_offset` are not known."""

    since_offset: int
    moves: list[AutomaticMove]


class BalanceHistory:
    """One node's, for use in its event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._since_offset = runtime.view.next_offset
        self._moves: deque[LoggedMove] = deque(maxlen=MOVES_MAX)
        runtime.listeners.append(self._folded)

    def newest(self, limit: int) -> ToldHistory:
        """Returns that many moves, if so many are known."""
        since = self._moves[0].offset if len(self._moves) == MOVES_MAX else self._since_offset
        # Later moves say how an earlier one ended.
        return ToldHistory(since, automatic_moves(self._moves)[-limit:])

    def _folded(self, entries: Iterable[Folded]) -> None:
        for entry in entries:
            found = logged_move(
                entry.offset, entry.timestamp_ms, entry.record, entry.outcome.verdict
            )
            if found is not None:
                self._moves.append(found)
