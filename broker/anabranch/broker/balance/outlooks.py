"""The present state of balancing and its next decision, as the leader knows them.

Only the leader is told which bundles could move, and for how long there has been a reason to. An
outlook proposes nothing and notes nothing: the next cycle goes on from the end of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.core.balance.outlook import SHEDDING_FIELDS, Outlook
from anabranch.core.balance.settings import setting_name
from anabranch.core.balancer import Balancer
from anabranch.core.log.state import leader_of

SettingValue = bool | int | float | str
_SHOWN: Final = tuple(map(setting_name, SHEDDING_FIELDS))


class ToldOutlook(msgspec.Struct, frozen=True):
    """An outlook, and the facts that it rests on.

    `settings`: those that a cycle goes by, by name. `due_in_s`: seconds until the next cycle; None
    if that is not known yet.
    """

    leader: str
    at_ms: int
    due_in_s: float | None
    settings: Mapping[str, SettingValue]
    outlook: Outlook


class BalanceOutlooks:
    """One node's, for use in its event loop."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings, lookups: LookupService) -> None:
        self.board = LoadBoard(runtime)
        self._runtime = runtime
        self._settings = settings
        self._lookups = lookups
        self._balancer = Balancer(runtime.core, runtime.proposals.new_id)

    def told(self) -> ToldOutlook:
        """Returns the outlook of this moment.

        Raises ElsewhereError if another node leads, and UnavailableError if none does.
        """
        self._must_lead()
        core, now = self._runtime.core, self._runtime.now()
        return ToldOutlook(
            core.me,
            core.log_now_ms,
            self._balancer.shed_in(now),
            self._shown(),
            self._balancer.outlook(self.board.known(), self.board.top(), now),
        )

    def _shown(self) -> dict[str, SettingValue]:
        values = self._settings.now.model_dump(mode="json", by_alias=True)
        return {name: values[name] for name in _SHOWN}

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
