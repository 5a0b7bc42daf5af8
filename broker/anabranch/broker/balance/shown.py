"""The balancer as people see it: the state of the loads, and its next decision.

Only the leader is told which bundles could move, and for how long there has been a reason to. An
outlook proposes nothing and notes nothing: the next cycle goes on from the end of the last one.
`anabranch balance history` reads past moves and splits from the log.
"""

from __future__ import annotations

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.core.balancer import Balancer, Outlook
from anabranch.core.log.state import leader_of


class ShownBalance:
    """One node's, for use in its event loop."""

    def __init__(self, runtime: Runtime, lookups: LookupService) -> None:
        self.board = LoadBoard(runtime)
        self._runtime = runtime
        self._lookups = lookups
        self._balancer = Balancer(runtime.core, runtime.proposals.new_id)

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
