"""A node's part in balancing: the leader sheds, each owner splits, and no node acts in safe
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.cycle import Seen, splits, unloads
from anabranch.core.balance.outlook import NoCycle, Outlook, outlook
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round
from anabranch.core.balance.splitting import OwnerView, SplitRound, TopicLoad
from anabranch.core.bundles.propose import NewId
from anabranch.core.entities.unit import UnitState
from anabranch.core.log.records import UnitMove
from anabranch.core.log.state import live_bundles
from anabranch.core.node import NodeCore

_SHEDDING: Final = "shedding"


class Balancer:
    """Answers once in an interval, however often one asks: with the decisions, and with the records
    to propose for them. It proposes nothing itself. A later cycle decides anew about a record that
    is lost.
    """

    def __init__(self, node: NodeCore, new_id: NewId) -> None:
        self._node = node
        self._new_id = new_id

    @property
    def _settings(self) -> BalanceSettings:
        return self._node.settings.balance

    def seen(
        self,
        loads: Mapping[str, BrokerLoadData],
        top: Mapping[str, TopBundlesLoadData],
        now: float,
    ) -> Seen:
        """The input of a decision about the cluster, from the brokers' reports."""
        node = self._node
        candidates = [node.candidate(broker) for broker in node.takers(now)]
        return Seen(loads, top, candidates, node.policies())

    def shed(
        self,
        loads: Mapping[str, BrokerLoadData],
        top: Mapping[str, TopBundlesLoadData],
        now: float,
    ) -> tuple[Round | None, list[UnitMove]]:
        """Runs a cycle of shedding, if one is due; returns None if this node does not decide it.

        A node that does not lead only counts for how long the condition has held, in case it comes
        to lead.
        """
        node, settings = self._node, self._settings
        if not node.balance.due(_SHEDDING, settings.shedding_interval_minutes * 60, now):
            return None, []
        leads = node.is_leader()
        seen = self.seen(loads, top if leads else {}, now)
        if self._prevented(seen, settings, now):
            return None, []
        now_ms = node.log_now_ms
        view = node.balance.view(node.state, seen, settings, now_ms)
        found = node.balance.shed(view, settings, now_ms)
        if not leads:
            return None, []
        return found, unloads(found, node.state, seen, settings, node.actor(), self._new_id)

    def _prevented(self, seen: Seen, settings: BalanceSettings, now: float) -> NoCycle | None:
        """Why a cycle that is due does not take place."""
        if not (settings.enabled and settings.shedding_enabled):
            return NoCycle.SWITCHED_OFF
        if not self._node.is_serving(now):
            return NoCycle.NOT_SERVING
        return NoCycle.ALONE if len(seen.candidates) < 2 else None

    def outlook(
        self,
        loads: Mapping[str, BrokerLoadData],
        top: Mapping[str, TopBundlesLoadData],
        now: float,
    ) -> Outlook:
        """Tells the state of the loads and the result of the next cycle; changes nothing."""
        node, settings, now_ms = self._node, self._settings, self._node.log_now_ms
        seen = self.seen(loads, top, now)
        return outlook(
            node.balance.state(settings, now_ms),
            node.balance.view(node.state, seen, settings, now_ms),
            node.balance.thresholds(settings),
            now_ms,
            self._prevented(seen, settings, now),
            node.balance.strategies,
        )

    def shed_in(self, now: float) -> float | None:
        """Seconds until the next cycle of shedding; None while that is unknown."""
        return self._node.balance.due_in(
            _SHEDDING, self._settings.shedding_interval_minutes * 60, now
        )

    def split(
        self,
        loads: Mapping[str, BundleLoad],
        topics: Callable[[str], Sequence[TopicLoad]],
        now: float,
    ) -> tuple[SplitRound | None, list[UnitMove]]:
        """A cycle of splits of this node's own bundles, if one is due; else None."""
        node, settings = self._node, self._settings
        due = node.balance.due("splitting", settings.split_interval_minutes * 60, now)
        wanted = settings.enabled and settings.auto_bundle_split_enabled
        if not (due and wanted and node.is_serving(now)):
            return None, []
        view = OwnerView(
            loads,
            lambda name: node.may_act(name, now),
            lambda namespace: len(live_bundles(node.state, namespace)),
            [name for name, unit in node.state.unsettled() if unit.state is UnitState.SPLITTING],
            topics,
        )
        found = node.balance.split(view, settings)
        return found, splits(found, node.state, node.actor(), self._new_id)
