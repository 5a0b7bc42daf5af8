"""A node's part in balancing: the leader sheds, each owner splits, and no node acts in safe mode.

An `Outlook` is the next decision itself, without any note of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, unique
from functools import partial
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.choosing import owned_in_group
from anabranch.core.balance.cycle import splits, unloads
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.reports import fault_of
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round, decide, deviation, usable_loads
from anabranch.core.balance.splitting import OwnerView, SplitRound, TopicLoad
from anabranch.core.bundles.propose import NewId
from anabranch.core.entities.unit import UnitState
from anabranch.core.log.records import UnitMove
from anabranch.core.log.state import live_bundles
from anabranch.core.node import NodeCore

_SHEDDING: Final = "shedding"


@unique
class NoCycle(StrEnum):
    """Why there is no cycle at all."""

    SWITCHED_OFF = "loadBalancerEnabled or loadBalancerSheddingEnabled is false"
    NOT_SERVING = "the leader has lost touch with the log, or is about to leave"
    ALONE = "there are no two brokers that take bundles"


class SeenBroker(msgspec.Struct, frozen=True):
    """A broker and its reported load, None if that is missing or implausible. `ignored`: the reason
    why it takes no part, "" if it does.

    `reported`: the number of bundles that it has told the leader about.
    """

    broker: str
    load: BrokerLoadData | None
    ignored: str
    reported: int


class Outlook(msgspec.Struct, frozen=True):
    """The balancer's input, and its next result.

    `due_in_s`: seconds until the next cycle; None if that is not known yet. `average`, `std`: those
    of the loads that take part; None if none does. `hits`: the number of cycles in a row for which
    the condition has held so far. `cycle`: the next one; None if it is prevented.
    """

    leader: str
    at_ms: int
    due_in_s: float | None
    settings: BalanceSettings
    brokers: tuple[SeenBroker, ...]
    average: float | None
    std: float | None
    hits: int
    prevented: NoCycle | None
    cycle: Round | None


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

    def view(
        self,
        loads: Mapping[str, BrokerLoadData],
        top: Mapping[str, TopBundlesLoadData],
        now: float,
    ) -> ClusterView:
        """The input of a decision about the cluster, from the brokers' reports."""
        node = self._node
        state, policies = node.state, node.policies()
        return ClusterView(
            loads,
            top,
            [node.candidate(broker) for broker in node.takers(now)],
            node.balance.owners(state, self._settings, node.log_ms),
            policies,
            partial(owned_in_group, state, policies),
        )

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
        view = self.view(loads, top if leads else {}, now)
        if self._prevented(view, settings, now):
            return None, []
        found = node.balance.shed(view, settings, node.log_ms)
        if not leads:
            return None, []
        return found, unloads(found, node.state, view, settings, node.actor(), self._new_id)

    def _prevented(
        self, view: ClusterView, settings: BalanceSettings, now: float
    ) -> NoCycle | None:
        """Why a cycle that is due does not take place."""
        if not (settings.enabled and settings.shedding_enabled):
            return NoCycle.SWITCHED_OFF
        if not self._node.is_serving(now):
            return NoCycle.NOT_SERVING
        return NoCycle.ALONE if len(view.candidates) < 2 else None

    def outlook(
        self,
        loads: Mapping[str, BrokerLoadData],
        top: Mapping[str, TopBundlesLoadData],
        now: float,
    ) -> Outlook:
        """Tells the state of the loads and the result of the next cycle; changes nothing."""
        node, settings, now_ms = self._node, self._settings, self._node.log_ms
        notes, view = node.balance, self.view(loads, top, now)
        held = notes.thresholds(settings)
        available = {each.broker for each in view.candidates}
        usable, _, ignored = usable_loads(loads, available, held.settings, now_ms)
        brokers = []
        for broker in sorted(available | loads.keys()):
            load = loads.get(broker)
            unknown = "" if broker in usable else "it has not been reported yet"
            brokers.append(
                SeenBroker(
                    broker,
                    None if load is None or fault_of(load, now_ms) else load,
                    ignored.get(broker, unknown),
                    len(top[broker].bundles) if broker in top else 0,
                )
            )
        prevented, state = self._prevented(view, settings, now), notes.state(settings, now_ms)
        cycle = None
        if prevented is None:
            _, found = decide(state, view, held.settings, now_ms, notes.strategies.copy())
            cycle = msgspec.structs.replace(found, thresholds=held.why)
        average, std = deviation(usable.values()) if usable else (None, None)
        return Outlook(
            leader=node.me,
            at_ms=now_ms,
            due_in_s=notes.due_in(_SHEDDING, settings.shedding_interval_minutes * 60, now),
            settings=settings,
            brokers=tuple(brokers),
            average=average,
            std=std,
            hits=state.hits,
            prevented=prevented,
            cycle=cycle,
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
