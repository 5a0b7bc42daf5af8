"""The brokers that may take a bundle: four filters, one after the other.

Two judge each broker by itself: its number of topics, the isolation policies. Two compare the
versions of the remaining ones, and their bundles of the anti-affinity group. This order keeps a
filter from preferring a broker that may not have the bundle. Otherwise a group, or a later version,
could leave only brokers that a policy bars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, unique
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.policies import NO_DOMAIN, Policies, Standing
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.entities.unit import UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.state import StateReader


@unique
class BrokerFilter(StrEnum):
    """The filters, by their names in the reference."""

    MAX_TOPIC_COUNT = "broker_max_topic_count_filter"
    ISOLATION_POLICIES = "broker_isolation_policies_filter"
    VERSION = "broker_version_filter"
    ANTI_AFFINITY_GROUP = "broker_anti_affinity_group_filter"


class Candidate(msgspec.Struct, frozen=True):
    """A broker that could take a bundle; `load` is None if no usable one is known."""

    broker: str
    version: str = ""
    load: BrokerLoadData | None = None
    persistent: bool = True  # the kinds of topics that it serves
    non_persistent: bool = True


class Terms(msgspec.Struct, frozen=True):
    """The terms by which candidates for a bundle are judged.

    `in_group`: the number of the anti-affinity group's bundles that each broker owns
    (`owned_in_group`).
    """

    namespace: str
    settings: BalanceSettings
    policies: Policies
    in_group: Mapping[str, int] = {}
    persistent: bool = True


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


def owned_in_group(state: StateReader, policies: Policies, namespace: str) -> dict[str, int]:
    """The number of the namespace's anti-affinity group's bundles that each broker owns."""
    counts: dict[str, int] = {}
    for each in policies.namespaces_in(policies.group_of(namespace)):
        for _, unit in state.bundles(each):
            if unit.state is UnitState.OWNED:
                counts[unit.broker] = counts.get(unit.broker, 0) + 1
    return counts


# --- the filters --------------------------------------------------------------------------------


def below_max_topics(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those that do not have as many topics as they may; without a load, they have none."""
    most = terms.settings.broker_max_topics
    return [each for each in candidates if each.load is None or each.load.topics < most]


def allowed(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those that the isolation policy of the namespace names, or, without one, shared brokers."""
    policy = terms.policies.policy_of(terms.namespace)
    if policy is None:
        shared = terms.policies.shared()
        if terms.persistent:
            return [each for each in candidates if each.persistent and shared[each.broker]]
        return [each for each in candidates if each.non_persistent and shared[each.broker]]
    standing = policy.standings()
    first, second = Standing.PRIMARY, Standing.SECONDARY
    primary = [each for each in candidates if standing[each.broker] is first]
    if len(primary) >= policy.min_limit:
        return primary
    return primary + [each for each in candidates if standing[each.broker] is second]


def of_latest_version(candidates: Sequence[Candidate], terms: Terms) -> Sequence[Candidate]:
    """Those of the highest version, if the settings wish for that.

    Raises InvalidInputError if a candidate's version is invalid.
    """
    if not terms.settings.prefer_later_versions or not candidates:
        return candidates
    keys = {version: _version_key(version) for version in {each.version for each in candidates}}
    highest = max(keys.values())
    latest = {version for version, key in keys.items() if key == highest}
    return [each for each in candidates if each.version in latest]


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


_Filter = Callable[[Sequence[Candidate], Terms], Sequence[Candidate]]
FILTERS: Final[Mapping[BrokerFilter, _Filter]] = {
    BrokerFilter.MAX_TOPIC_COUNT: below_max_topics,
    BrokerFilter.ISOLATION_POLICIES: allowed,
    BrokerFilter.VERSION: of_latest_version,
    BrokerFilter.ANTI_AFFINITY_GROUP: apart,
}


# --- versions -----------------------------------------------------------------------------------

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
