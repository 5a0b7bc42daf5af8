"""The choice of a broker for a bundle: filters, the rule of the least use, and its grounds.

Four filters remove brokers, one after the other. Two judge each broker by itself: its number of
topics, the isolation policies. Two compare the versions of the remaining ones, and their bundles of
the anti-affinity group. This order keeps a filter from preferring a broker that may not have the
bundle. Otherwise a group, or a later version, could leave only brokers that a policy bars.

A free bundle then goes to any broker whose use is clearly below the average (Pulsar's "least
resource usage with weight"). All of these are equally good. Suppose that the least loaded were
always taken. Every node would then send all its bundles there, until the next report of that
broker's load. Among equally good ones the broker with the fewest units takes it, by the log. That
number is known at once, whereas a load is as old as its last report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from functools import cache, lru_cache, partial
from itertools import count
from types import MappingProxyType
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData, spread
from anabranch.core.balance.policies import NO_DOMAIN, Policies, Standing
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.strategies import Strategies, StrategyKind, must, plain
from anabranch.core.bundles.propose import Chosen, choose_broker
from anabranch.core.entities.unit import UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.grounds import WEIGHED_MAX, Grounds, Weighed, rule_of
from anabranch.core.log.state import StateQueries, StateReader


class Candidate(msgspec.Struct, frozen=True):
    """A broker that could take a bundle; `load` is None if no usable one is known."""

    broker: str
    version: str = ""
    load: BrokerLoadData | None = None


class Terms(msgspec.Struct, frozen=True):
    """The terms by which candidates for a bundle are judged.

    `in_group`: the number of the anti-affinity group's bundles that each broker owns
    (`owned_in_group`).
    """

    namespace: str
    settings: BalanceSettings
    policies: Policies
    in_group: Mapping[str, int] = {}


def owned_in_group(state: StateReader, policies: Policies, group: str) -> dict[str, int]:
    """The number of an anti-affinity group's bundles that each broker owns."""
    counts: dict[str, int] = {}
    for each in policies.namespaces_in(group):
        for _, unit in state.bundles(each):
            if unit.state is UnitState.OWNED:
                counts[unit.broker] = counts.get(unit.broker, 0) + 1
    return counts


# --- the filters --------------------------------------------------------------------------------


@unique
class BrokerFilter(StrEnum):
    """The filters, by their names in the reference."""

    MAX_TOPIC_COUNT = "broker_max_topic_count_filter"
    ISOLATION_POLICIES = "broker_isolation_policies_filter"
    VERSION = "broker_version_filter"
    ANTI_AFFINITY_GROUP = "broker_anti_affinity_group_filter"


class Filtered(msgspec.Struct, frozen=True):
    """The remaining candidates, the removed ones with their filters, and the filters that failed.

    A filter that failed has removed none.
    """

    kept: tuple[Candidate, ...]
    removed: tuple[tuple[str, BrokerFilter], ...]
    failed: tuple[tuple[BrokerFilter, str], ...]


def filtered(candidates: Sequence[Candidate], terms: Terms) -> Filtered:
    """Applies all filters."""
    removed: list[tuple[str, BrokerFilter]] = []
    failed: list[tuple[BrokerFilter, str]] = []
    for name, keep in FILTERS.items():
        try:
            kept = keep(candidates, terms)
        except InvalidInputError as error:
            failed.append((name, str(error)))
            continue
        if len(kept) < len(candidates):
            left = {each.broker for each in kept}
            removed += [(each.broker, name) for each in candidates if each.broker not in left]
        candidates = kept
    return Filtered(tuple(candidates), tuple(removed), tuple(failed))


def below_max_topics(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those that do not have as many topics as they may; without a load, they have none."""
    most = terms.settings.broker_max_topics
    return [each for each in candidates if each.load is None or each.load.topics < most]


def allowed(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those that the isolation policy of the namespace names, or, without one, shared brokers."""
    policy = terms.policies.by_namespace[terms.namespace]
    if policy is None:
        shared = terms.policies.shared
        return [each for each in candidates if shared[each.broker]]
    standing = policy.standings
    primary = [each for each in candidates if standing[each.broker] is Standing.PRIMARY]
    if len(primary) >= policy.min_limit:
        return primary
    return primary + [each for each in candidates if standing[each.broker] is Standing.SECONDARY]


def of_latest_version(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those of the highest version, if the settings wish for that.

    Raises InvalidInputError if a candidate's version is invalid.
    """
    if not terms.settings.prefer_later_versions or not candidates:
        return candidates
    keys = {version: _version_key(version) for version in {each.version for each in candidates}}
    highest = max(keys.values())
    return [each for each in candidates if keys[each.version] == highest]


def apart(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those with the fewest bundles of the anti-affinity group, in the domains with the fewest."""
    if not candidates or not terms.policies.group_of(terms.namespace):
        return candidates
    counts = terms.in_group
    domains = terms.policies.domains_by_broker() if terms.settings.failure_domains_enabled else {}
    if domains:
        sums: dict[str, int] = {}
        for each in candidates:
            domain = domains.get(each.broker, NO_DOMAIN)
            sums[domain] = sums.get(domain, 0) + counts.get(each.broker, 0)
        least = min(sums.values())
        candidates = [
            each for each in candidates if sums[domains.get(each.broker, NO_DOMAIN)] == least
        ]
    fewest = min(counts.get(each.broker, 0) for each in candidates)
    return [each for each in candidates if counts.get(each.broker, 0) == fewest]


FILTERS: Final[
    Mapping[BrokerFilter, Callable[[Sequence[Candidate], Terms], Sequence[Candidate]]]
] = {
    BrokerFilter.MAX_TOPIC_COUNT: below_max_topics,
    BrokerFilter.ISOLATION_POLICIES: allowed,
    BrokerFilter.VERSION: of_latest_version,
    BrokerFilter.ANTI_AFFINITY_GROUP: apart,
}

_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_VERSION_LENGTH_MAX: Final = 256

VersionKey = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


@lru_cache(1_024)
def _version_key(version: str) -> VersionKey:
    """The order of versions, as semver.org says: a pre-release is below its release.

    Builds of one version are alike. Raises InvalidInputError.

    >>> _version_key("2.10.1-SNAPSHOT") < _version_key("2.10.1") < _version_key("2.10.2-rc.1")
    True
    """
    found = _VERSION.fullmatch(version) if len(version) <= _VERSION_LENGTH_MAX else None
    if found is None:
        raise InvalidInputError(
            f"bad version {version[:_VERSION_LENGTH_MAX]!r}: a broker must say one like 1.2.3"
        )
    major, minor, patch, before = found.groups()
    # A number sorts before a word, and numbers by their value.
    parts = tuple(
        (False, int(part), "") if part.isdigit() else (True, 0, part)
        for part in (before.split(".") if before else ())
    )
    return int(major), int(minor), int(patch), before is None, parts


# --- the rule of the least use ------------------------------------------------------------------


@unique
class ChoiceReason(StrEnum):
    """Why a broker was chosen, or none."""

    LESS_LOADED = "less loaded than the average by the threshold"
    NO_DIFFERENCE = "no broker is less loaded than the average by the threshold"
    IN_TURN = "brokers take turns for namespaces that are excluded from shedding"
    NO_CANDIDATE = "no broker is left"
    STRATEGY = "chosen among those that all filters left"


class Choice(msgspec.Struct, frozen=True):
    """A choice with its grounds; `broker` is "" when there is none.

    `considered`: the brokers that the filters left, with their loads; None for an unknown load.
    """

    broker: str
    reason: ChoiceReason
    considered: tuple[tuple[str, float | None], ...]
    removed: tuple[tuple[str, BrokerFilter], ...]

    def grounds(self, *more: str) -> Grounds:
        """A record's account of it: the chosen broker first, then the least loaded ones. `more`:
        the strategy that chose, and other facts for the rule (`rule_of`).
        """
        loads = [load for _, load in self.considered if load is not None]
        weighed = [
            Weighed(broker, -1.0 if load is None else load) for broker, load in self.considered
        ]
        weighed.sort(key=lambda each: (each.broker != self.broker, each.load))
        weighed += [Weighed(broker, -1.0, name.value) for broker, name in self.removed]
        return Grounds(
            rule_of(self.reason.value, *more),
            len(weighed),
            math.sqrt(spread(loads)[1]) if loads else -1.0,
            -1.0,
            tuple(weighed[:WEIGHED_MAX]),
        )


def choose(
    found: Filtered,
    terms: Terms,
    pick: Callable[[Sequence[str]], str],
    turns: Iterator[int],
) -> Choice:
    """The broker for a bundle, of those that the filters left; `pick` decides among equals.

    `turns` counts this node's choices for namespaces that are excluded from shedding.
    """
    considered = tuple((each.broker, _load(each)) for each in found.kept)
    names = [broker for broker, _ in considered]
    if not names:
        broker, reason = "", ChoiceReason.NO_CANDIDATE
    elif terms.namespace in terms.settings.shedding_excluded_namespaces:
        broker, reason = sorted(names)[next(turns) % len(names)], ChoiceReason.IN_TURN
    else:
        share = terms.settings.average_resource_usage_difference_threshold_percentage / 100
        best = _less_loaded(considered, share)
        reason = ChoiceReason.LESS_LOADED if best else ChoiceReason.NO_DIFFERENCE
        broker = pick(best or names)
    return Choice(broker, reason, considered, found.removed)


def _load(candidate: Candidate) -> float | None:
    """A load that is no number is none, as it would make the average none."""
    load = candidate.load
    if load is None or not math.isfinite(load.weighted_max_ema):
        return None
    return load.weighted_max_ema


def _less_loaded(considered: Sequence[tuple[str, float | None]], share: float) -> list[str]:
    """Those whose load is below the average of all that is known by `share`, or more."""
    known = [(name, load) for name, load in considered if load is not None]
    if not known:
        return []
    average = math.fsum(load for _, load in known) / len(known)
    return [name for name, load in known if load + share <= average]


# --- a node's choices ---------------------------------------------------------------------------


class LoadChooser:
    """Makes some choices at one instant.

    `candidate` says the known facts of a broker. `at_hand` is the one that is preferred among
    equally good ones (`choose_broker`), "" for none. `turns` counts this node's choices for
    namespaces whose bundles brokers take in turn.
    """

    def __init__(
        self,
        state: StateQueries,
        settings: BalanceSettings,
        policies: Policies,
        candidate: Callable[[str], Candidate],
        strategies: Strategies | None = None,
        at_hand: str = "",
        turns: Iterator[int] | None = None,
    ) -> None:
        self._state = state
        self._settings = settings
        self._policies = policies
        self._candidate = cache(candidate)
        self._strategies = strategies or Strategies()
        self._at_hand = at_hand
        self._turns = count() if turns is None else turns

    def __call__(
        self, unit: str, counts: Mapping[str, int], excluded: Collection[str] = ()
    ) -> Chosen:
        """Returns one of the brokers in `counts`, which has the number of their units; ""
        for none.
        """
        namespace, settings = unit.rpartition("/")[0], self._settings
        group = self._policies.group_of(namespace)
        in_group = owned_in_group(self._state, self._policies, group) if group else {}
        terms = Terms(namespace, settings, self._policies, in_group)
        found = filtered([self._candidate(each) for each in counts if each not in excluded], terms)
        fewest = partial(choose_broker, unit, counts, at_hand=self._at_hand)
        choice = choose(found, terms, fewest, self._turns)
        broker, fault = self._asked(unit, found.kept, counts)
        if broker is None:
            return choice.broker, (choice.grounds("", fault),)
        choice = msgspec.structs.replace(choice, broker=broker, reason=ChoiceReason.STRATEGY)
        return broker, (choice.grounds(settings.load_placement_strategy),)

    def _asked(
        self, unit: str, kept: Sequence[Candidate], counts: Mapping[str, int]
    ) -> tuple[str | None, str]:
        """The strategy's choice among the remaining brokers, None if the built-in rule decides;
        and why a strategy did not.
        """
        if not kept:
            return None, ""

        def checked(answer: object) -> str:
            broker = plain(answer, str)
            left = {each.broker for each in kept}
            must(broker in left, f"{broker!r} is not among the brokers to choose from")
            return broker

        given = unit, kept, MappingProxyType(counts), self._settings
        return self._strategies.ask(StrategyKind.ASSIGNMENT, self._settings, checked, *given)
