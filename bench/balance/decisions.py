"""The balancer's decisions: how long they take in a large cluster, and how many they are."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from random import Random

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData, top_bundles
from anabranch.core.balance.choosing import Candidate, Choice, Terms, choose, filtered
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.policies import (
    NO_POLICIES,
    FailureDomain,
    IsolationPolicy,
    Policies,
)
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import ShedderState, decide
from bench.figure import Measured, spread
from bench.place import Place

_BROKERS = 1_000
_BUNDLES_EACH = 100
_NAMESPACES = 500
_CALLS = 20
_NOW_MS = 1_700_000_000_000
_MB = 1e6
_NODES = 10  # of the cluster of which one has everything
_BUNDLES = 1_000
_ZIPF = 1.1
_CYCLES_MAX = 200
_MOVES_BY_THE_RULES = 109.0  # which a test counts, step by step
_SETTINGS = BalanceSettings(
    shedding_condition_hit_count_threshold=0,
    shedding_delay_in_seconds=0.0,
    shedding_bundles_with_policies_enabled=True,
    failure_domains_enabled=True,
    prefer_later_versions=True,
)
# So that no call ends before it has looked at every pair, unless it has served enough of them.
_RESTLESS = msgspec.structs.replace(_SETTINGS, broker_load_target_std=0.01)


def _names(count: int) -> list[str]:
    return [f"broker-{number}.example:8080" for number in range(count)]


def _policies(brokers: list[str]) -> Policies:
    """Ten policies that each leave a tenth of the brokers, ten domains, one group."""
    return Policies(
        isolation={
            f"policy-{number}": IsolationPolicy(
                (f"tenant-{number}/.*",), (f"broker-[0-9]*{number}\\.example",)
            )
            for number in range(10)
        },
        domains={
            f"zone-{number}": FailureDomain(tuple(brokers[number::10])) for number in range(10)
        },
        groups={f"tenant-{number}/grouped": "group" for number in range(10)},
    )


def _candidates(brokers: list[str], loads: Mapping[str, BrokerLoadData]) -> list[Candidate]:
    return [Candidate(broker, "1.0.0", loads[broker]) for broker in brokers]


def _took_ms(call: Callable[[], object]) -> dict[str, float]:
    call()  # what is found of names and expressions is kept from call to call
    times = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1_000)
    return spread(times)


# --- a shedding decision --------------------------------------------------------------------------


def _view(amount: Callable[[Random, int], float], policies: Policies) -> ClusterView:
    """`amount`: the bytes a second of a broker's bundle, by its number."""
    rng = Random(1)
    brokers = _names(_BROKERS)
    loads: dict[str, BrokerLoadData] = {}
    top: dict[str, TopBundlesLoadData] = {}
    owners: dict[str, str] = {}
    for number, broker in enumerate(brokers):
        bundles = {
            f"tenant-{number % 10}/n{(number + at) % _NAMESPACES}/{number}-{at}": BundleLoad(
                msg_throughput_in=amount(rng, at)
            )
            for at in range(_BUNDLES_EACH)
        }
        owners.update(dict.fromkeys(bundles, broker))
        top[broker] = top_bundles(bundles, _SETTINGS, policies, _NOW_MS)
        load = 0.1 + 0.8 * number / _BROKERS
        loads[broker] = BrokerLoadData(
            msg_throughput_in=load * 100 * _MB,
            weighted_max_ema=load,
            msg_throughput_ema=load * 100 * _MB,
            updated_at_ms=_NOW_MS,
        )
    return ClusterView(
        loads,
        top,
        _candidates(brokers, loads),
        lambda bundle: owners.get(bundle, ""),
        policies,
        lambda _: {},
    )


def shedding(place: Place) -> Measured:
    """The slowest of three kinds of clusters; most look at every pair and every bundle."""
    policies = _policies(_names(_BROKERS))
    views = {
        "bundles that may go": _view(lambda rng, _: rng.uniform(0.1, 2) * _MB, NO_POLICIES),
        "bundles that are too large": _view(lambda rng, _: rng.uniform(90, 99) * _MB, NO_POLICIES),
        "bundles that policies bar": _view(lambda rng, _: rng.uniform(0.1, 2) * _MB, policies),
    }
    found = {
        kind: _took_ms(partial(decide, ShedderState(), view, _RESTLESS, _NOW_MS))
        for kind, view in views.items()
    }
    worst = max(each["p50"] for each in found.values())
    return Measured(value=worst, unit="ms", judged=worst, goal=50.0, details=dict(found))


# --- a choice -------------------------------------------------------------------------------------


def choosing(place: Place) -> Measured:
    """A broker for a bundle that a policy and a group bind, with every filter switched on."""
    rng = Random(2)
    brokers = _names(_BROKERS)
    loads = {broker: BrokerLoadData(weighted_max_ema=rng.random()) for broker in brokers}
    candidates = _candidates(brokers, loads)
    policies = _policies(brokers)
    in_group = {broker: rng.randrange(3) for broker in brokers}
    kinds = {"policy and group": "tenant-3/grouped", "neither": "other/free"}
    found = {}
    for kind, namespace in kinds.items():
        terms = Terms(namespace, _SETTINGS, policies, in_group)
        found[kind] = _took_ms(partial(_chosen, candidates, terms))
    worst = max(each["p50"] for each in found.values())
    return Measured(value=worst, unit="ms", judged=worst, goal=1.0, details=dict(found))


def _chosen(candidates: list[Candidate], terms: Terms) -> Choice:
    return choose(filtered(candidates, terms), terms, lambda best: best[7 % len(best)], repeat(0))


# --- from everything on one node ------------------------------------------------------------------


def _zipf() -> dict[str, float]:
    weights = [1 / (rank**_ZIPF) for rank in range(1, _BUNDLES + 1)]
    total = math.fsum(weights)
    return {f"t/n/{rank}": each / total for rank, each in enumerate(weights)}


def moves(place: Place) -> Measured:
    """How many bundles move until nothing is to be done, by the fewest that bring the deviation to
    its target; the one node's load is 2.
    """
    traffic = {name: share * 2 for name, share in _zipf().items()}
    brokers = _names(_NODES)
    owner = dict.fromkeys(traffic, brokers[0])
    moved = cycles = 0
    for _ in range(_CYCLES_MAX):
        _, found = decide(ShedderState(), _spread(traffic, owner, brokers), _SETTINGS, _NOW_MS)
        if not found.decisions:
            break
        cycles += 1
        moved += len(found.decisions)
        owner.update((each.bundle, each.destination) for each in found.decisions)
    fewest = _fewest(sorted(traffic.values(), reverse=True), _SETTINGS.broker_load_target_std)
    load = dict.fromkeys(brokers, 0.0)
    for name, broker in owner.items():
        load[broker] += traffic[name]
    return Measured(
        value=moved,
        unit="moves",
        judged=moved,
        goal=_MOVES_BY_THE_RULES,
        limit=fewest,
        limit_what="the fewest moves that could do",
        details={"cycles": cycles, "deviation": statistics.pstdev(load.values())},
    )


def _spread(
    traffic: Mapping[str, float], owner: Mapping[str, str], brokers: list[str]
) -> ClusterView:
    loads: dict[str, BrokerLoadData] = {}
    top: dict[str, TopBundlesLoadData] = {}
    for broker in brokers:
        mine = {
            name: BundleLoad(msg_throughput_in=each * 100 * _MB)
            for name, each in traffic.items()
            if owner[name] == broker
        }
        total = math.fsum(traffic[name] for name in mine)
        loads[broker] = BrokerLoadData(
            msg_throughput_in=total * 100 * _MB,
            weighted_max_ema=total,
            msg_throughput_ema=total * 100 * _MB,
            updated_at_ms=_NOW_MS,
        )
        top[broker] = top_bundles(mine, _SETTINGS, NO_POLICIES, _NOW_MS)
    return ClusterView(
        loads,
        top,
        _candidates(brokers, loads),
        owner.__getitem__,
        NO_POLICIES,
        lambda _: {},
    )


def _fewest(amounts: list[float], target: float) -> int:
    """Whatever is moved, the largest first and spread evenly, does no better than this."""
    total, moved = math.fsum(amounts), 0.0
    for count, amount in enumerate(amounts, 1):
        moved += amount
        others = moved / (_NODES - 1)
        if statistics.pstdev([total - moved, *[others] * (_NODES - 1)]) <= target:
            return count
    return len(amounts)
