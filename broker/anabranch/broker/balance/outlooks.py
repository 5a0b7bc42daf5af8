"""How balancing stands, and what would be done next, as the leader knows.

It alone is told which bundles could move, and for how long there has been a reason to. Nothing is
proposed, and nothing noted: the next cycle goes on from where the last one ended.
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
    """An outlook, and what it rests on.

    `settings`: those that a cycle goes by, by name. `due_in_s`: when the next cycle comes; None:
    not known yet.
    """

    leader: str
    at_ms: int
    due_in_s: float | None
    settings: Mapping[str, SettingValue]
    outlook: Outlook


class BalanceOutlooks:
    """One node's. To be used in its event loop."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings, lookups: LookupService) -> None:
        self.board = LoadBoard(runtime)
        self._runtime = runtime
        self._settings = settings
        self._lookups = lookups
        self._balancer = Balancer(runtime.core, runtime.proposals.new_id)

    def told(self) -> ToldOutlook:
        """How things stand.

        Raises ElsewhereError where another node leads, UnavailableError where nobody does.
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
