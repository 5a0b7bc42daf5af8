"""What the next cycles would do: the decision itself, tried on a cluster in thought.

The first cycle sees what is known now. Before each later one an interval has passed; what was
decided is through, with the loads that were predicted; brokers whose loads count have reported
again, and no other load has changed. A bundle that is unloaded without a destination is taken to
come to the broker that its own one was paired with. Bundles that nobody has reported move nowhere:
of these the leader does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from heapq import nlargest

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData, fault_of
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData, rank
from anabranch.core.balance.offload import BundleMove, ClusterView, Exchange, Pair
from anabranch.core.balance.policies import Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import (
    Round,
    ShedderState,
    decide,
    deviation,
    remembered,
    usable_loads,
)
from anabranch.core.balance.strategies import Strategies

SHEDDING_FIELDS = (
    "enabled",
    "shedding_enabled",
    "shedding_interval_minutes",
    "shedding_grace_period_minutes",
    "shedding_delay_in_seconds",
    "shedding_excluded_namespaces",
    "shedding_bundles_with_policies_enabled",
    "shedding_condition_hit_count_threshold",
    "max_number_of_broker_shedding_per_cycle",
    "broker_load_target_std",
    "adjusted_thresholds_enabled",
    "adjusted_thresholds_max_factor",
    "transfer_enabled",
    "load_shedding_strategy",
    "broker_overloaded_threshold_percentage",
    "broker_load_data_ttl_in_seconds",
    "broker_max_topics",
    "prefer_later_versions",
    "failure_domains_enabled",
)
"""The settings that a cycle goes by. The others count where loads are measured and reported, where
free bundles are assigned, or where bundles are split.
"""


@unique
class NoCycle(StrEnum):
    """Why there is no cycle at all."""

    SWITCHED_OFF = "loadBalancerEnabled or loadBalancerSheddingEnabled is false"
    NOT_SERVING = "the leader has lost touch with the log, or is about to leave"
    ALONE = "there are no two brokers that take bundles"


class Basis(msgspec.Struct, frozen=True):
    """What a forecast begins with. It is of values only: nothing changes it, nor does it change.

    `settings`: with the thresholds that hold, in all cycles: in thought there is no noise.
    `thresholds`: why, as of a `Round`. `strategies`: a copy, whose faults are its own.
    """

    state: ShedderState
    view: ClusterView
    settings: BalanceSettings
    now_ms: int
    prevented: NoCycle | None = None
    thresholds: str = ""
    strategies: Strategies | None = None


class SeenBroker(msgspec.Struct, frozen=True):
    """A broker, and its load as it was reported, None where there is none, or one that cannot be
    meant; `ignored`: why it takes no part, "" if it does.

    `reported`: how many bundles it has told the leader of.
    """

    broker: str
    load: BrokerLoadData | None
    ignored: str
    reported: int


class Outlook(msgspec.Struct, frozen=True):
    """What the balancer goes by, and what it would do.

    `average`, `std`: of the loads that take part; None where none does. `hits`: for how many cycles
    in a row the condition has held so far.
    """

    brokers: tuple[SeenBroker, ...]
    average: float | None
    std: float | None
    hits: int
    prevented: NoCycle | None
    cycles: tuple[Round, ...]


def basis(
    state: ShedderState,
    view: ClusterView,
    settings: BalanceSettings,
    now_ms: int,
    prevented: NoCycle | None = None,
    thresholds: str = "",
    strategies: Strategies | None = None,
) -> Basis:
    """Takes down all that a forecast could ask, of reported bundles."""
    owners = {
        bundle: view.owner_of(bundle)
        for report in view.top.values()
        for bundle, _ in report.bundles
    }
    groups: dict[str, Mapping[str, int]] = {}
    for bundle in owners:
        namespace = bundle.rpartition("/")[0]
        group = view.policies.group_of(namespace)
        if group and group not in groups:
            groups[group] = dict(view.in_group(namespace))
    taken = msgspec.structs.replace(
        view, owner_of=_asked(owners), in_group=_counted(view.policies, groups)
    )
    return Basis(state, taken, settings, now_ms, prevented, thresholds, strategies)


def forecast(begin: Basis, cycles: int) -> Outlook:
    """So many cycles, as far as they can be known now."""
    view, settings, now_ms = begin.view, begin.settings, begin.now_ms
    available = {each.broker for each in view.candidates}
    loads, _, ignored = usable_loads(view.loads, available, settings, now_ms)
    reasons = dict(ignored)
    unsound = {broker for broker, load in view.loads.items() if fault_of(load, now_ms)}
    seen = tuple(
        SeenBroker(
            broker,
            None if broker in unsound else view.loads.get(broker),
            reasons.get(broker, "" if broker in loads else "it has not been reported yet"),
            len(_bundles(view, broker)),
        )
        for broker in sorted(available | view.loads.keys())
    )
    average, std = deviation(loads.values()) if loads else (None, None)
    trial = _Trial(begin)
    rounds = () if begin.prevented else tuple(trial.cycle() for _ in range(cycles))
    return Outlook(seen, average, std, begin.state.hits, begin.prevented, rounds)


def _asked(owners: Mapping[str, str]) -> Callable[[str], str]:
    return lambda bundle: owners.get(bundle, "")


def _counted(
    policies: Policies, groups: Mapping[str, Mapping[str, int]]
) -> Callable[[str], Mapping[str, int]]:
    return lambda namespace: groups.get(policies.group_of(namespace), {})


class _Trial:
    """The cluster in thought."""

    def __init__(self, begin: Basis) -> None:
        self._state = begin.state
        self._settings = begin.settings
        self._thresholds = begin.thresholds
        self._strategies = begin.strategies
        self._now_ms = begin.now_ms
        self._before = begin.view
        self._owners: dict[str, str] = {}  # of what was moved in thought
        self._groups: dict[str, Counter[str]] = {}  # that it has changed, by group
        self._view = msgspec.structs.replace(
            begin.view, owner_of=self._owner_of, in_group=self._in_group
        )

    def cycle(self) -> Round:
        """The next one; what it decides is done, and reported, before the one after it."""
        settings, now_ms = self._settings, self._now_ms
        known = remembered(self._state, settings, now_ms)
        self._state, found = decide(known, self._view, settings, now_ms, self._strategies)
        for exchange in found.exchanges:
            moves = [move for step in exchange.steps for move in step.moves]
            if moves:
                self._note(moves)
                self._weigh(exchange, moves)
                self._hand_over(moves)
        self._now_ms += round(settings.shedding_interval_minutes * 60_000)
        self._report({broker for broker, _ in found.ignored})
        return msgspec.structs.replace(found, thresholds=self._thresholds)

    def _owner_of(self, bundle: str) -> str:
        return self._owners.get(bundle) or self._before.owner_of(bundle)

    def _in_group(self, namespace: str) -> Mapping[str, int]:
        group = self._before.policies.group_of(namespace)
        return self._groups.get(group) or self._before.in_group(namespace)

    def _note(self, moves: list[BundleMove]) -> None:
        """Writes down what the balancer has moved, as every node does that reads of it."""
        before, now_ms = self._state, self._now_ms
        self._state = ShedderState(
            before.hits,
            {**before.unloaded_brokers, **{each.source: now_ms for each in moves}},
            {**before.unloaded_bundles, **{each.bundle: now_ms for each in moves}},
        )

    def _weigh(self, exchange: Exchange, moves: list[BundleMove]) -> None:
        """Gives both brokers the loads that were predicted, and the traffic of what they have."""
        source, destination = exchange.source, exchange.destination
        loads = dict(self._view.loads)
        pair = Pair(source, destination, loads[source], loads[destination])
        after = pair.after(exchange.moved)
        for broker, load, sign in ((source, after[0], -1), (destination, after[1], 1)):
            throughput = loads[broker].msg_throughput_ema + sign * exchange.moved
            loads[broker] = msgspec.structs.replace(
                loads[broker], weighted_max_ema=load, msg_throughput_ema=max(0.0, throughput)
            )
        reported = {each: dict(_bundles(self._view, each)) for each in (source, destination)}
        for move in moves:
            bundle = reported[move.source][move.bundle]
            loads[move.source] = _with(loads[move.source], bundle, -1)
            loads[move.destination] = _with(loads[move.destination], bundle, 1)
        there = [
            msgspec.structs.replace(each, load=loads[each.broker]) if each.load else each
            for each in self._view.candidates
        ]
        self._view = msgspec.structs.replace(self._view, loads=loads, candidates=there)

    def _hand_over(self, moves: list[BundleMove]) -> None:
        """Lets the bundles belong to, and be reported by, those whom they go to."""
        pair = (moves[0].source, moves[0].destination)
        reports = {each: dict(_bundles(self._view, each)) for each in pair}
        for move in moves:
            reports[move.destination][move.bundle] = reports[move.source].pop(move.bundle)
            self._owners[move.bundle] = move.destination
            self._count(move)
        most = self._settings.max_number_of_bundles_in_bundle_load_report
        top = dict(self._view.top)
        for broker, bundles in reports.items():
            top[broker] = _report_of(bundles, max(most, len(_bundles(self._view, broker))))
        self._view = msgspec.structs.replace(self._view, top=top)

    def _count(self, move: BundleMove) -> None:
        namespace = move.bundle.rpartition("/")[0]
        group = self._before.policies.group_of(namespace)
        if group:
            counts = Counter(self._in_group(namespace))
            counts[move.source] -= 1
            counts[move.destination] += 1
            self._groups[group] = counts

    def _report(self, ignored: set[str]) -> None:
        """Lets all brokers report whose loads take part."""
        loads = {
            broker: load
            if broker in ignored
            else msgspec.structs.replace(load, updated_at_ms=self._now_ms)
            for broker, load in self._view.loads.items()
        }
        self._view = msgspec.structs.replace(self._view, loads=loads)


def _bundles(view: ClusterView, broker: str) -> tuple[tuple[str, BundleLoad], ...]:
    report = view.top.get(broker)
    return report.bundles if report is not None else ()


def _with(load: BrokerLoadData, bundle: BundleLoad, sign: int) -> BrokerLoadData:
    """The load with a bundle more, or less; what brokers and bundles tell may not fit together."""
    return msgspec.structs.replace(
        load,
        msg_throughput_in=max(0.0, load.msg_throughput_in + sign * bundle.msg_throughput_in),
        msg_throughput_out=max(0.0, load.msg_throughput_out + sign * bundle.msg_throughput_out),
        msg_rate_in=max(0.0, load.msg_rate_in + sign * bundle.msg_rate_in),
        msg_rate_out=max(0.0, load.msg_rate_out + sign * bundle.msg_rate_out),
        bundle_count=max(0, load.bundle_count + sign),
        topics=max(0, load.topics + sign * bundle.topics),
    )


def _report_of(bundles: Mapping[str, BundleLoad], most: int) -> TopBundlesLoadData:
    """The highest ones, the least loaded of them first."""
    sound = ((rank(load), name) for name, load in bundles.items() if load.is_sound)
    ranked = nlargest(most, sound)
    return TopBundlesLoadData(tuple((name, bundles[name]) for _, name in reversed(ranked)))
