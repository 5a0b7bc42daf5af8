"""Loads of brokers, written down in a line each, and what the leader's shedder makes of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.choosing import Candidate
from anabranch.core.balance.offload import ClusterView, Exchange
from anabranch.core.balance.policies import FailureDomain, IsolationPolicy, Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round, ShedderState, Unload, decide, usable_loads

NOW_MS = 1_700_000_000_000
MB = 1e6
PORT = ":8080"


class Shedding:
    """A cluster as its leader sees it.

    `set NAME VALUE`: a setting, by its field. `broker NAME [load L] [throughput MB] [average MB]
    [updated SECONDS-AGO] [version V] [topics N]`: a broker that is there; `report` in place of
    `broker`: a load without a broker. `top NAME: BUNDLE=MB ...`: its top bundles as it reports
    them, which it also owns; a bundle's namespace is before a slash, else n. `owns NAME: BUNDLE
    ...`: who has them in truth. `unloaded BUNDLE|BROKER SECONDS-AGO`. `policy NAME: NAMESPACES
    primary BROKERS [secondary BROKERS]`. `group NAME: NAMESPACE ...`. `domain NAME: BROKER ...`.
    `cycle [N]`: that many calls in a row, of which the last one is told.
    """

    def __init__(self) -> None:
        self._settings = BalanceSettings()
        self._state = ShedderState()
        self._candidates: dict[str, Candidate] = {}
        self._loads: dict[str, BrokerLoadData] = {}
        self._top: dict[str, TopBundlesLoadData] = {}
        self._owners: dict[str, str] = {}
        self._policies = Policies()
        self._unloaded: dict[str, dict[str, int]] = {"brokers": {}, "bundles": {}}

    def __call__(self, command: str) -> list[str]:
        what, _, rest = command.partition(" ")
        if what == "cycle":
            return self._cycle(int(rest or 1))
        name, _, listed = rest.partition(":")
        match what:
            case "set":
                self._set(*rest.split(" ", 1))
            case "broker" | "report":
                self._broker(*rest.split(), there=what == "broker")
            case "top":
                self._report(name + PORT, listed.split())
            case "owns":
                self._owners.update((bundle_name(each), name + PORT) for each in listed.split())
            case "unloaded":
                self._unload(*rest.split())
            case "policy" | "group" | "domain":
                self._bind(what, name, listed)
            case _:
                raise ValueError(f"no such command: {command}")
        return []

    def _set(self, name: str, value: str) -> None:
        given = msgspec.json.decode(value)
        value_of = tuple(given) if isinstance(given, list) else given
        self._settings = msgspec.structs.replace(self._settings, **{name: value_of})

    def _broker(self, name: str, *words: str, there: bool) -> None:
        given = dict(zip(words[::2], words[1::2], strict=True))
        load = BrokerLoadData(
            weighted_max_ema=float(given.get("load", "nan")),
            msg_throughput_in=float(given.get("throughput", 0)) * MB,
            msg_throughput_ema=float(given.get("average", given.get("throughput", 0))) * MB,
            topics=int(given.get("topics", 0)),
            updated_at_ms=NOW_MS - round(float(given.get("updated", 0)) * 1000),
        )
        if "load" in given:
            self._loads[name + PORT] = load
        if there:
            version = given.get("version", "1.0.0")
            self._candidates[name + PORT] = Candidate(name + PORT, version, load)

    def _report(self, broker: str, listed: list[str]) -> None:
        bundles = {
            bundle_name(name): BundleLoad(msg_throughput_in=float(amount) * MB)
            for name, amount in [each.split("=") for each in listed]
        }
        self._top[broker] = TopBundlesLoadData(tuple(bundles.items()), NOW_MS)
        self._owners.update(dict.fromkeys(bundles, broker))

    def _unload(self, name: str, seconds: str) -> None:
        broker = name + PORT in self._candidates
        kind, key = ("brokers", name + PORT) if broker else ("bundles", bundle_name(name))
        self._unloaded[kind][key] = NOW_MS - round(float(seconds) * 1000)
        self._state = msgspec.structs.replace(
            self._state,
            unloaded_brokers=dict(self._unloaded["brokers"]),
            unloaded_bundles=dict(self._unloaded["bundles"]),
        )

    def _bind(self, what: str, name: str, listed: str) -> None:
        before = self._policies
        if what == "group":
            groups = dict(before.groups) | {f"t/{each}": name for each in listed.split()}
            self._policies = msgspec.structs.replace(before, groups=groups)
        elif what == "domain":
            domain = FailureDomain(tuple(each + PORT for each in listed.split()))
            domains = dict(before.domains) | {name: domain}
            self._policies = msgspec.structs.replace(before, domains=domains)
        else:
            names, _, brokers = listed.strip().partition(" primary ")
            primary, _, secondary = brokers.partition(" secondary ")
            namespaces = tuple(f"t/{each}" for each in names.split())
            policy = IsolationPolicy(
                namespaces, tuple(primary.split()), tuple(secondary.split()), 1
            )
            isolation = dict(before.isolation) | {name: policy}
            self._policies = msgspec.structs.replace(before, isolation=isolation)

    def _cycle(self, times: int) -> list[str]:
        for _ in range(times):
            self._state, found = decide(self._state, self._view(), self._settings, NOW_MS)
        there = set(self._candidates)
        _, _, ignored = usable_loads(self._loads, there, self._settings, NOW_MS)
        return [*(f"ignored {_short(each)}: {why}" for each, why in ignored.items()), *told(found)]

    def _view(self) -> ClusterView:
        return ClusterView(
            loads=self._loads,
            top=self._top,
            candidates=list(self._candidates.values()),
            owner_of=lambda bundle: self._owners.get(bundle, ""),
            policies=self._policies,
            in_group=self._in_group,
        )

    def _in_group(self, group: str) -> Mapping[str, int]:
        members = set(self._policies.namespaces_in(group))
        owners = [
            owner for bundle, owner in self._owners.items() if bundle.rpartition("/")[0] in members
        ]
        return {owner: owners.count(owner) for owner in owners}


def bundle_name(short: str) -> str:
    """The name of a bundle as a scenario has it."""
    return f"t/{short}" if "/" in short else f"t/n/{short}"


def told(found: Round) -> list[str]:
    """A round, to be read."""
    lines = []
    if found.average is not None and found.std is not None:
        why = f", {found.condition.value}" if found.condition else ""
        spread = f"average {found.average:.3f}, deviation {found.std:.3f}"
        lines.append(f"{spread}, hits {found.hits}{why}")
    for exchange in found.exchanges:
        lines.append(_exchange(exchange))
        bundles = {move.bundle for step in exchange.steps for move in step.moves}
        lines += [_decision(each) for each in found.decisions if each.bundle in bundles]
        lines += [f"  {_short(name)} stays: {why.value}" for name, why in exchange.unmoved]
    skipped = f", counted as {found.skipped.value}" if found.skipped else ""
    awaited = f" ({', '.join(map(_short, found.awaited))})" if found.awaited else ""
    lines.append(f"ends: {found.ended.value}{awaited}{skipped}")
    return lines


def _exchange(exchange: Exchange) -> str:
    at = f" ({_short(exchange.next_bundle)})" if exchange.next_bundle else ""
    return (
        f"{_short(exchange.source)} and {_short(exchange.destination)}: "
        f"{exchange.moved / MB:.3g} of {exchange.wanted / MB:.3g} MB/s; "
        f"{exchange.stopped.value}{at}"
    )


def _decision(unload: Unload) -> str:
    to = _short(unload.destination) or "anybody"
    return (
        f"  {_short(unload.bundle)} from {_short(unload.source)} to {to}, {unload.reason.value}, "
        f"deviation {unload.std_before:.3f} to {unload.std_after:.3f}"
    )


def _short(name: str) -> str:
    return name.removesuffix(PORT).removeprefix("t/n/").removeprefix("t/")
