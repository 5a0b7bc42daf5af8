"""The bundles that leave their brokers: the leader's decision, once in an interval.

The most loaded broker is paired with the least loaded one, the second with the second, and so on.
That ends once the deviation of all loads is at its target or enough brokers were served. `offload`
says a pair's exchange. Nothing happens before the condition has held for several calls in a row.
Nor does anything happen before the loads of brokers that gave something away were measured anew.

Unusable loads (too old, damaged, of absent brokers) take no part, neither in the deviation nor in a
pair.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import (
    BrokerLoadData,
    has_cooled,
    spread,
)
from anabranch.core.balance.bundle_load import TopBundlesLoadData
from anabranch.core.balance.counters import BalanceResult, UnloadReason
from anabranch.core.balance.offload import (
    BundleMove,
    ClusterView,
    Exchange,
    Pair,
    Permits,
    as_asked,
    offload,
)
from anabranch.core.balance.reports import (
    fault_of,
    is_stale,
)
from anabranch.core.balance.settings import BalanceSettings, setting_name
from anabranch.core.balance.strategies import Strategies, StrategyKind, WantedMove, must, wishes

_OVERLOADED, _UNDERLOADED = UnloadReason.OVERLOADED, UnloadReason.UNDERLOADED
_WISHES: Final = (_OVERLOADED, _UNDERLOADED)  # reasons that a strategy may give
_UNDER_MAX: Final = 0.5


class ShedderState(msgspec.Struct, frozen=True):
    """The notes from call to call: the number of times in a row that the condition has held.

    `unloaded_brokers`, `unloaded_bundles`: the time, in milliseconds, of each one's part in an
    unload that is through. The caller writes them down, and forgets bundles after the grace period.
    """

    hits: int = 0
    unloaded_brokers: Mapping[str, int] = {}
    unloaded_bundles: Mapping[str, int] = {}


class Unload(msgspec.Struct, frozen=True):
    """A bundle is to leave its broker for `destination`, or for the next look-up's choice ("").

    `std_before`, `std_after`: the deviation before and after this bundle's step, as expected. A
    step is a bundle with those that are swapped for it.
    """

    bundle: str
    source: str
    destination: str
    reason: UnloadReason
    std_before: float
    std_after: float


@unique
class RoundEnd(StrEnum):
    """Why a call decides no more than it does."""

    COOLING_DOWN = "a broker that gave bundles away has not reported its load since for long enough"
    NO_LOADS = "no broker has a load that can be used"
    LOAD_MISSING = "a broker has not reported its load yet"
    BALANCED = "the deviation is at its target, and no broker has far too much or too little"
    HITS = "it has not been so for enough cycles in a row"
    SERVED = "as many brokers are served as may be in a cycle"
    NO_PAIRS = "no two brokers are left that could exchange bundles"
    ASKED = "the strategy that decides asks for no more"

    @property
    def setting(self) -> str:
        """The setting by which it could be otherwise; "" for none."""
        return setting_name(_FIELDS[self]) if self in _FIELDS else ""


_FIELDS: Final[Mapping[RoundEnd, str]] = {
    RoundEnd.COOLING_DOWN: "shedding_delay_in_seconds",
    RoundEnd.NO_LOADS: "broker_load_data_ttl_in_seconds",
    RoundEnd.BALANCED: "broker_load_target_std",
    RoundEnd.HITS: "shedding_condition_hit_count_threshold",
    RoundEnd.SERVED: "max_number_of_broker_shedding_per_cycle",
}


class Round(msgspec.Struct, frozen=True):
    """The result of one call.

    `average`, `std`: those of the loads, None if the call ended before they were known.
    `std_after`: the expected one after all moves. `skipped`: the reason that is counted if nothing
    is decided. `exchanges`: each pair, and its stop. `condition`: the reason to act, None if there
    is none. `awaited`: the brokers whose next report the call waited for. `thresholds`: those that
    held in place of the settings, and why; "" for none. `strategy`: the strategy that decided, ""
    for the built-in rule. `fault`: the reason why the set strategy did not decide.
    """

    decisions: tuple[Unload, ...]
    ended: RoundEnd
    hits: int
    average: float | None = None
    std: float | None = None
    std_after: float | None = None
    skipped: UnloadReason | None = None
    exchanges: tuple[Exchange, ...] = ()
    condition: UnloadReason | None = None
    awaited: tuple[str, ...] = ()
    thresholds: str = ""
    strategy: str = ""
    fault: str = ""

    @property
    def counted(self) -> tuple[BalanceResult, UnloadReason] | None:
        """The count for the call itself; None if its decisions count, once they are done."""
        return None if self.skipped is None else (BalanceResult.SKIP, self.skipped)


def decide(
    state: ShedderState,
    view: ClusterView,
    settings: BalanceSettings,
    now_ms: int,
    strategies: Strategies | None = None,
) -> tuple[ShedderState, Round]:
    """One call of the transfer shedder. It has an answer to any input."""
    available = {each.broker for each in view.candidates}
    loads, stale, _ = usable_loads(view.loads, available, settings, now_ms)
    cooling = {
        broker: unloaded_ms
        for broker, unloaded_ms in state.unloaded_brokers.items()
        if (load := loads.get(broker)) is None or not has_cooled(load, unloaded_ms, settings)
    }
    state = msgspec.structs.replace(state, unloaded_brokers=cooling)

    def nothing(
        reason: UnloadReason, ended: RoundEnd, awaited: Iterable[str] = ()
    ) -> tuple[ShedderState, Round]:
        waits = tuple(sorted(awaited))
        return state, Round((), ended, state.hits, skipped=reason, awaited=waits)

    hot = cooling.keys() & loads.keys()
    if hot:
        return nothing(UnloadReason.COOL_DOWN, RoundEnd.COOLING_DOWN, hot)
    if not loads:
        reason = UnloadReason.OUT_DATED_DATA if stale else UnloadReason.NO_BROKERS
        return nothing(reason, RoundEnd.NO_LOADS)
    missing = available - loads.keys() - stale
    if missing:
        return nothing(UnloadReason.NO_LOAD_DATA, RoundEnd.LOAD_MISSING, missing)
    call = _Call(loads, settings)
    asked, fault = None, ""
    if view.top:  # a node that does not lead only counts how long the condition has held
        own = strategies or Strategies()
        asked, fault = _asked(own, msgspec.structs.replace(view, loads=loads), settings)
    condition = call.condition() if asked is None else next((each.reason for each in asked), None)
    met = condition is not None
    hits = state.hits + 1 if met else 0
    state = msgspec.structs.replace(state, hits=hits)
    done = Round(
        *((), RoundEnd.BALANCED, hits, call.average, call.std, call.std),
        condition=condition,
        strategy="" if asked is None else settings.load_shedding_strategy,
        fault=fault,
    )
    if hits <= settings.shedding_condition_hit_count_threshold:
        at_rest = RoundEnd.BALANCED if asked is None else RoundEnd.ASKED
        ended = RoundEnd.HITS if met else at_rest
        return state, msgspec.structs.replace(done, ended=ended, skipped=UnloadReason.HIT_COUNT)
    std = call.std
    permits = Permits(view, settings, state.unloaded_bundles)
    ended = call.serve(view, permits) if asked is None else call.follow(asked, view, permits)
    skipped = None if call.decisions else call.empty_reason()
    if call.decisions:
        state = msgspec.structs.replace(state, hits=0)
    return state, msgspec.structs.replace(
        done,
        decisions=tuple(call.decisions),
        ended=ended,
        hits=state.hits,
        std=std,
        std_after=call.std,
        skipped=skipped,
        exchanges=tuple(call.exchanges),
    )


def _asked(
    own: Strategies, view: ClusterView, settings: BalanceSettings
) -> tuple[list[WantedMove] | None, str]:
    """The wishes of the strategy that decides, None if the built-in rule does; and its fault."""
    sources = _sources(view.top, view.loads)

    def checked(answer: Iterable[object]) -> list[WantedMove]:
        found = list(wishes(answer, WantedMove).values())
        for bundle, to, reason in map(msgspec.structs.astuple, found):
            must(bundle in sources, f"no broker has reported bundle {bundle!r}")
            must(to in view.loads, f"{to!r} has no load")
            must(to != sources[bundle], f"{to} has {bundle} already")
            must(reason in _WISHES, f"{reason!r} is no reason to move a bundle")
        return found

    shown = msgspec.structs.replace(
        view, loads=MappingProxyType(view.loads), top=MappingProxyType(view.top)
    )
    return own.ask(StrategyKind.SHEDDER, settings, checked, shown, settings)


def _sources(top: Mapping[str, TopBundlesLoadData], loads: Collection[str]) -> dict[str, str]:
    """The broker that has told of each bundle, among the brokers whose loads count."""
    return {
        bundle: broker
        for broker, report in top.items()
        if broker in loads
        for bundle, _ in report.bundles
    }


def usable_loads(
    store: Mapping[str, BrokerLoadData],
    available: set[str],
    settings: BalanceSettings,
    now_ms: int,
) -> tuple[dict[str, BrokerLoadData], set[str], dict[str, str]]:
    """The loads that decisions may be made by; brokers whose load is out of date, or is none; and
    why each load that takes no part does not.
    """
    loads: dict[str, BrokerLoadData] = {}
    stale: set[str] = set()
    ignored: dict[str, str] = {}
    for broker, load in store.items():
        if broker not in available:
            ignored[broker] = "the broker is not in service"
        elif fault := fault_of(load, now_ms):
            ignored[broker] = fault
            stale.add(broker)
        elif is_stale(load, settings, now_ms):
            ignored[broker] = "it is out of date"
            stale.add(broker)
        else:
            loads[broker] = load
    return loads, stale, ignored


def apart(view: ClusterView, settings: BalanceSettings, now_ms: int) -> dict[str, float]:
    """Each load that decisions may be made by, less the mean of all."""
    available = {each.broker for each in view.candidates}
    loads, _, _ = usable_loads(view.loads, available, settings, now_ms)
    average, _ = deviation(loads.values()) if loads else (0.0, 0.0)
    return {broker: load.weighted_max_ema - average for broker, load in loads.items()}


def remembered(state: ShedderState, settings: BalanceSettings, now_ms: int) -> ShedderState:
    """The state without the bundles whose grace period is over."""
    oldest_ms = now_ms - settings.shedding_grace_period_minutes * 60_000
    bundles = {name: at for name, at in state.unloaded_bundles.items() if at > oldest_ms}
    return msgspec.structs.replace(state, unloaded_bundles=bundles)


def deviation(loads: Collection[BrokerLoadData]) -> tuple[float, float]:
    """Mean and standard deviation of one load at least."""
    average, variance = _spread(loads)
    return average, math.sqrt(variance)


def _spread(loads: Collection[BrokerLoadData]) -> tuple[float, float]:
    return spread([load.weighted_max_ema for load in loads])


def _by_load(load: BrokerLoadData) -> tuple[float, float]:
    """The order of brokers: the load, and among equal loads the throughput."""
    return load.weighted_max_ema, load.msg_throughput_ema


class _Call:
    """One call, from the loads that take part."""

    def __init__(self, loads: Mapping[str, BrokerLoadData], settings: BalanceSettings) -> None:
        self._loads = loads
        self._settings = settings
        self._order = sorted(loads, key=lambda broker: _by_load(loads[broker]))
        self._lowest, self._highest = 0, len(self._order) - 1
        self.average, self._variance = _spread(loads.values())
        self.decisions: list[Unload] = []
        self.exchanges: list[Exchange] = []

    @property
    def std(self) -> float:
        """The deviation of the loads, after the decisions so far."""
        return math.sqrt(self._variance)

    def condition(self) -> UnloadReason | None:
        """Why the brokers that are next should exchange bundles; None if they need not."""
        if self.std > self._settings.broker_load_target_std:
            return _OVERLOADED
        low = self._loads[self._order[self._lowest]]
        high = self._loads[self._order[self._highest]]
        share = min(_UNDER_MAX, max(0.0, self._settings.broker_load_target_std / 2))
        if (
            low.weighted_max_ema < self.average * share
            or low.msg_throughput_ema < high.msg_throughput_ema * share
        ):
            return _UNDERLOADED
        return _OVERLOADED if self._is_over(high) else None

    def _is_over(self, load: BrokerLoadData) -> bool:
        most = self._settings.broker_overloaded_threshold_percentage / 100
        beyond = self.average + self._settings.broker_load_target_std
        return load.weighted_max_ema > most and load.weighted_max_ema > beyond

    def serve(self, view: ClusterView, permits: Permits) -> RoundEnd:
        """Decides for one pair after the other."""
        served = 0
        while self._lowest < self._highest:
            if served >= self._settings.max_number_of_broker_shedding_per_cycle:
                return RoundEnd.SERVED
            reason = self.condition()
            if reason is None:
                return RoundEnd.BALANCED
            source, destination = self._order[self._highest], self._order[self._lowest]
            self._highest -= 1
            pair = Pair(source, destination, self._loads[source], self._loads[destination])
            exchange = offload(pair, view, permits)
            self.exchanges.append(exchange)
            if exchange.steps:
                self._take(exchange, reason)
                served += 1
                self._lowest += 1
        return RoundEnd.NO_PAIRS

    def follow(self, asked: Iterable[WantedMove], view: ClusterView, permits: Permits) -> RoundEnd:
        """Decides what a strategy of one's own asks for, pair by pair, as far as it may be."""
        sources = _sources(view.top, self._loads)
        pairs: dict[tuple[str, str], list[WantedMove]] = {}
        for each in asked:
            pairs.setdefault((sources[each.bundle], each.destination), []).append(each)
        served: set[str] = set()
        for (source, destination), wanted in pairs.items():
            if len(served | {source}) > self._settings.max_number_of_broker_shedding_per_cycle:
                return RoundEnd.SERVED
            pair = Pair(source, destination, self._loads[source], self._loads[destination])
            exchange = as_asked(pair, [each.bundle for each in wanted], view, permits)
            self.exchanges.append(exchange)
            if exchange.steps:
                self._take(exchange, wanted[0].reason)
                served.add(source)
                self._weigh(pair, exchange.moved)
        return RoundEnd.ASKED

    def _weigh(self, pair: Pair, moved: float) -> None:
        """Gives both brokers the loads that they should have then, for later pairs of them."""
        after = pair.after(moved)
        both = ((pair.source, pair.high), (pair.destination, pair.low))
        weighed = {
            broker: msgspec.structs.replace(load, weighted_max_ema=then)
            for (broker, load), then in zip(both, after, strict=True)
        }
        self._loads = {**self._loads, **weighed}

    def _take(self, exchange: Exchange, reason: UnloadReason) -> None:
        """Turns a pair's steps into decisions, and the deviation into the one that is expected
        then.
        """
        begun = self._variance
        for step in exchange.steps:
            before = self.std
            self._variance = max(0.0, begun + step.squares / len(self._order))
            self.decisions += [self._unload(move, reason, before) for move in step.moves]

    def _unload(self, move: BundleMove, reason: UnloadReason, before: float) -> Unload:
        to = move.destination if self._settings.transfer_enabled else ""
        return Unload(move.bundle, move.source, to, reason, before, self.std)

    def empty_reason(self) -> UnloadReason:
        """The reason to count for a call that found nothing to move."""
        if any(exchange.stopped.is_missing_report for exchange in self.exchanges):
            return UnloadReason.NO_LOAD_DATA
        return UnloadReason.NO_BUNDLES if self.exchanges else UnloadReason.HIT_COUNT
