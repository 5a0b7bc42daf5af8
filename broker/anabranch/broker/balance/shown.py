"""The balancer as people see it: the state of the loads, its next decision, and its past ones.

Only the leader is told which bundles could move, and for how long there has been a reason to. An
outlook proposes nothing and notes nothing: the next cycle goes on from the end of the last one.

The log has all moves and splits, and `anabranch balance history` reads it. A node keeps the newest
part, from the entry on with which it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.core.balance.history import AutomaticMove, LoggedMove, automatic_moves, logged_move
from anabranch.core.balancer import Balancer, Outlook
from anabranch.core.log.outcome import Folded
from anabranch.core.log.state import leader_of

MOVES_MAX: Final = 1_000


class ToldHistory(msgspec.Struct, frozen=True):
    """The newest moves, the oldest of them first; moves before `since_offset` are not known."""

    since_offset: int
    moves: list[AutomaticMove]


class ShownBalance:
    """One node's, for use in its event loop."""

    def __init__(self, runtime: Runtime, lookups: LookupService) -> None:
        self.board = LoadBoard(runtime)
        self._runtime = runtime
        self._lookups = lookups
        self._balancer = Balancer(runtime.core, runtime.proposals.new_id)
        self._since_offset = runtime.view.next_offset
        self._moves: deque[LoggedMove] = deque(maxlen=MOVES_MAX)
        runtime.listeners.append(self._folded)

    def outlook(self) -> Outlook:
        """Returns the outlook of this moment.

        Raises ElsewhereError if another node leads, and UnavailableError if none does.
        """
        self._must_lead()
        return self._balancer.outlook(self.board.known(), self.board.top(), self._runtime.now())

    def _must_lead(self) -> None:
        core = self._runtime.core
        if core.is_leader():
            return
        leader, _ = leader_of(self._runtime.view)
        located = self._lookups.locate_broker(leader) if leader else None
        if located is None:
            raise UnavailableError("there is no leader at this moment; try again")
        raise ElsewhereError(
            f"{leader} leads, and alone knows which bundles could move; ask it, at "
            f"{located.web_url or located.web_url_tls}",
            located.web_url,
            located.web_url_tls,
        )

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
