"""What can be asked about balancing: how things stand, and what would be done, as the leader knows.

It alone is told which bundles could move, and for how long there has been a reason to. Nothing is
proposed, and nothing noted: the next cycle goes on from where the last one ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.settings.trial import SettingValue, shown, tried
from anabranch.core.balance.forecast import Outlook, forecast
from anabranch.core.balancer import Balancer
from anabranch.core.log.state import leader_of


class ToldOutlook(msgspec.Struct, frozen=True):
    """An outlook, and what it rests on.

    `settings`: those that a cycle goes by, by name; `changed`: of those that are tried, what the
    leader has instead. `due_in_s`: when its own next cycle comes; None: not known yet.
    """

    leader: str
    at_ms: int
    due_in_s: float | None
    settings: Mapping[str, SettingValue]
    changed: Mapping[str, SettingValue]
    outlook: Outlook


class BalanceForecasts:
    """One node's. To be used in its event loop."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings, lookups: LookupService) -> None:
        self.board = LoadBoard(runtime)
        self._runtime = runtime
        self._settings = settings
        self._lookups = lookups
        self._balancer = Balancer(runtime.core, runtime.proposals.new_id)

    async def told(self, given: Mapping[str, object], cycles: int) -> ToldOutlook:
        """How things stand, and so many cycles from now on, by the settings given or its own.

        Raises InvalidInputError for settings that cannot be meant, ElsewhereError where another
        node leads, UnavailableError where nobody does.
        """
        mine = self._settings.now
        fields = tried(mine, given)
        self._must_lead()
        runtime, settings = self._runtime, fields.balance_settings()
        now = runtime.now()
        begin = self._balancer.basis(self.board.known(), self.board.top(settings), settings, now)
        due_in_s = self._balancer.shed_in(now)
        # With many brokers and cycles it takes seconds, in which this node has to go on.
        outlook = await asyncio.to_thread(forecast, begin, cycles)
        wanted, own = shown(fields), shown(mine)
        return ToldOutlook(
            runtime.core.me,
            begin.now_ms,
            due_in_s,
            wanted,
            {name: value for name, value in own.items() if value != wanted[name]},
            outlook,
        )

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
