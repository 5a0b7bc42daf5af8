"""The balancer's cycles: their times, the notes between them, and their proposals.

Every node keeps the same notes from the log: the bundles that the balancer has moved, and the times
of the moves. So a new leader goes on where the last one ended. No bundle moves again within its
grace period, no open move is decided anew, and the count of cycles in which the condition held goes
on. The new leader decides afresh about anything that the last one had not proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

import msgspec

from anabranch.core.balance.adjusting import (
    Recorded,
    Thresholds,
    shedding_thresholds,
    split_thresholds,
)
from anabranch.core.balance.counters import SplitReason, UnloadReason
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import (
    Round,
    ShedderState,
    Unload,
    apart,
    decide,
    remembered,
)
from anabranch.core.balance.splitting import Hits, OwnerView, SplitRound, decide_splits
from anabranch.core.balance.strategies import Strategies
from anabranch.core.bundles import propose
from anabranch.core.bundles.propose import Actor, NewId
from anabranch.core.entities.unit import IN_FLIGHT, Unit, UnitState
from anabranch.core.fold.replica import Replica
from anabranch.core.log.grounds import Grounds, Weighed, rule_of
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import AUTOMATIC, Cause, UnitMove
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict

_CAUSES: Final[Mapping[UnloadReason | SplitReason, Cause]] = {
    UnloadReason.OVERLOADED: Cause.OVERLOADED,
    UnloadReason.UNDERLOADED: Cause.UNDERLOADED,
    SplitReason.TOPICS: Cause.TOPICS,
    SplitReason.SESSIONS: Cause.SESSIONS,
    SplitReason.MSG_RATE: Cause.MSG_RATE,
    SplitReason.BANDWIDTH: Cause.BANDWIDTH,
}


class BalanceCycle:
    """One node's notes. `now` is seconds of its own clock, `now_ms` the log's."""

    def __init__(self) -> None:
        self.strategies = Strategies()  # the shell knows those that are installed
        self.turns = count()  # gives turns to brokers, for namespaces excluded from shedding
        self._hits = 0
        self._split_hits: Hits = {}
        self._loads = Recorded()  # brokers' loads, less the mean of all
        self._traffic = Recorded()  # the traffic of this broker's bundles
        self._leaving: dict[str, str] = {}  # the brokers that moving bundles leave
        self._bundles: dict[str, int] = {}  # the end of the balancer's move of each
        self._brokers: dict[str, int] = {}
        self._began = 0  # the first log offset whose record was read here
        self._since: dict[str, float] = {}  # the start of the present interval

    def began(self, state: Replica) -> None:
        """The state is complete, but this node did not read the records that led to it.

        The balancer may have made the recent moves among them.
        """
        self._began = state.next_offset
        self._leaving = {
            name: unit.source for name, unit in state.unsettled() if unit.state in IN_FLIGHT
        }

    def folded(self, entry: Folded, log_ms: int) -> None:
        """The node has read the next entry of the log. `log_ms`: the log's time, by which loads are
        told. If the log's clock has fallen back, an entry's own time would seem long ago.
        """
        record = entry.record
        if not isinstance(record, UnitMove) or entry.outcome.verdict is not Verdict.ACCEPTED:
            return
        for name, unit in entry.outcome.changes:
            if not isinstance(unit, Unit):
                self._leaving.pop(name, None)
            elif unit.state is UnitState.RELEASING and record.cause in AUTOMATIC:
                self._leaves(name, unit.source)
            elif unit.state in (UnitState.OWNED, UnitState.FREE):
                self._settled(name, log_ms)

    def _leaves(self, bundle: str, source: str) -> None:
        """The balancer's move of a bundle has begun."""
        self._leaving[bundle] = source
        self._hits = 0
        self._loads = self._loads.disturbed()

    def _settled(self, bundle: str, at_ms: int) -> None:
        """A bundle is on no move any more; if the balancer moved it, that is through."""
        self._loads = self._loads.disturbed()
        if bundle in self._leaving:
            self._bundles[bundle] = at_ms
            self._brokers[self._leaving.pop(bundle)] = at_ms

    def gave_at_ms(self, broker: str) -> int | None:
        """The time at which the balancer last took a bundle from this broker, if that still
        counts.
        """
        return self._brokers.get(broker)

    def due(self, what: str, interval_s: float, now: float) -> bool:
        """Tells whether the interval, which may have changed, is over; if so, begins the
        next one.
        """
        if now < self._since.setdefault(what, now) + interval_s:
            return False
        self._since[what] = now
        return True

    def due_in(self, what: str, interval_s: float, now: float) -> float | None:
        """Seconds until the interval is over; None if none has begun."""
        since = self._since.get(what)
        return None if since is None else max(0.0, since + interval_s - now)

    # --- shedding -----------------------------------------------------------------------

    def owners(
        self, state: StateReader, settings: BalanceSettings, now_ms: int
    ) -> Callable[[str], str]:
        """Returns what a `ClusterView` tells of bundles' owners."""
        grace_ms = settings.shedding_grace_period_minutes * 60_000

        def owner_of(bundle: str) -> str:
            unit = state.unit(bundle)
            if unit is None or unit.state is not UnitState.OWNED:
                return ""
            # This node has not read the mover's name: the balancer may have moved it.
            unknown = unit.since_offset < self._began
            return "" if unknown and now_ms - unit.since_ms < grace_ms else unit.broker

        return owner_of

    def state(self, settings: BalanceSettings, now_ms: int) -> ShedderState:
        """The notes from earlier cycles, without those older than the grace period."""
        known = ShedderState(self._hits, dict(self._brokers), self._bundles)
        return remembered(known, settings, now_ms)

    def thresholds(self, settings: BalanceSettings) -> Thresholds:
        """Those that hold for the next cycle of shedding."""
        return shedding_thresholds(settings, self._loads)

    def shed(self, view: ClusterView, settings: BalanceSettings, now_ms: int) -> Round:
        """One cycle, which counts for the next ones."""
        before = self.state(settings, now_ms)
        self._bundles = dict(before.unloaded_bundles)
        held = self.thresholds(settings)
        after, found = decide(before, view, held.settings, now_ms, self.strategies)
        self._hits, self._brokers = after.hits, dict(after.unloaded_brokers)
        if found.std is not None:
            most = held.settings.shedding_condition_hit_count_threshold
            ended = before.hits if found.condition is None and before.hits <= most else 0
            self._loads = self._loads.sampled(apart(view, settings, now_ms), ended)
        return msgspec.structs.replace(found, thresholds=held.why)

    # --- splitting ----------------------------------------------------------------------

    def split(self, view: OwnerView, settings: BalanceSettings) -> SplitRound:
        """One cycle of a broker's own bundles."""
        before, held = self._split_hits, split_thresholds(settings, self._traffic)
        self._split_hits, found = decide_splits(before, view, held.settings, self.strategies)
        going_on = {each.bundle for each in found.decisions} | self._split_hits.keys()
        most = held.settings.namespace_bundle_split_condition_hit_count_threshold
        ended = [
            row
            for bundle, row in before.items()
            if bundle in view.loads and bundle not in going_on and row <= most
        ]
        traffic = {name: load.msg_throughput for name, load in view.loads.items() if load.is_sound}
        self._traffic = self._traffic.sampled(traffic, max(ended, default=0))
        return msgspec.structs.replace(found, thresholds=held.why)


def unloads(
    found: Round,
    state: StateReader,
    view: ClusterView,
    settings: BalanceSettings,
    actor: Actor,
    new_id: NewId,
) -> list[UnitMove]:
    """The records that a round asks for, each with its grounds."""
    records = []
    for each in found.decisions:
        unit = state.unit(each.bundle)
        if unit is None or unit.broker != each.source:
            continue
        cause = _CAUSES[each.reason]
        record = propose.release(actor, each.bundle, unit, each.destination, new_id(), cause)
        if record is not None:
            rule = rule_of(each.reason.value, found.strategy, found.thresholds, found.fault)
            grounds = _grounds(each, rule, view, settings)
            records.append(msgspec.structs.replace(record, choice=(grounds,)))
    return records


def _grounds(unload: Unload, rule: str, view: ClusterView, settings: BalanceSettings) -> Grounds:
    pair = [each for each in (unload.source, unload.destination) if each]
    weighed = tuple(
        Weighed(broker, view.loads[broker].weighted_max_ema)
        for broker in pair
        if broker in view.loads
    )
    return Grounds(
        rule,
        len(view.candidates),
        unload.std_before,
        unload.std_after,
        weighed,
        round(settings.shedding_grace_period_minutes * 60_000),
    )


def splits(found: SplitRound, state: StateReader, actor: Actor, new_id: NewId) -> list[UnitMove]:
    """The records that a round of splits asks for. If settings alone say why, the cause does."""
    records = []
    for each in found.decisions:
        unit = state.unit(each.bundle)
        if unit is None or unit.broker != actor.broker:
            continue
        record = propose.split(actor, each.bundle, unit, [each.boundary], new_id())
        if record is not None:
            why = rule_of(each.reason.value, found.strategy, found.thresholds, found.fault)
            said = (Grounds(why, 0, -1.0, -1.0, ()),) if why != each.reason.value else ()
            records.append(msgspec.structs.replace(record, cause=_CAUSES[each.reason], choice=said))
    return records
