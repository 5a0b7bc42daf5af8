"""The allowed places of bundles: isolation policies, failure domains, anti-affinity groups.

Patterns (`policies.patterns`) match the whole text. That is `tenant/namespace` for namespaces, and
the host or `host:port` for brokers. If several policies fit a namespace, the first by name counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum, unique
from functools import cached_property
from typing import Final, Generic, TypeVar

import msgspec

from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.log.state import StateQueries
from anabranch.core.policies.patterns import matches

_REMEMBERED_MAX: Final = 100_000  # names

_Found = TypeVar("_Found")
NO_DOMAIN: Final = "default"  # for a broker that no failure domain names


@unique
class Standing(IntEnum):
    """A broker's standing with a policy."""

    PRIMARY = 0
    SECONDARY = 1
    OUT = 2


class IsolationPolicy(msgspec.Struct, frozen=True, dict=True):
    """The brokers that may own the bundles of the namespaces that it names.

    Secondary brokers may only while there are fewer than `min_limit` primary ones.
    `usage_threshold`, in percent, is part of a policy's body and decides nothing.
    """

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_limit: int = 0
    usage_threshold: int = 0

    def names(self, namespace: str) -> bool:
        """Tells whether the policy names the namespace."""
        return _matches(self.namespaces, namespace)

    def standing(self, broker: str) -> Standing:
        """The broker's standing, by its host or its whole id."""
        host = host_of(broker)
        if not host:
            return Standing.OUT
        if _matches(self.primary, host) or _matches(self.primary, broker):
            return Standing.PRIMARY
        if _matches(self.secondary, host) or _matches(self.secondary, broker):
            return Standing.SECONDARY
        return Standing.OUT

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """The standing of each broker, for any broker id."""
        return _Remembered(self.standing)


class FailureDomain(msgspec.Struct, frozen=True, gc=False):
    """Brokers that may fail together: a rack, a zone."""

    brokers: tuple[str, ...]


class Policies(msgspec.Struct, frozen=True, dict=True):
    """All that says where bundles may be.

    `isolation` and `domains` by their names; `groups`: the anti-affinity group of each namespace
    that is in one.
    """

    isolation: Mapping[str, IsolationPolicy] = {}
    domains: Mapping[str, FailureDomain] = {}
    groups: Mapping[str, str] = {}

    @cached_property
    def by_namespace(self) -> Mapping[str, IsolationPolicy | None]:
        """The first isolation policy, by name, for any namespace."""
        policies = [self.isolation[name] for name in sorted(self.isolation)]

        def first(namespace: str) -> IsolationPolicy | None:
            return next((policy for policy in policies if policy.names(namespace)), None)

        return _Remembered(first)

    def group_of(self, namespace: str) -> str:
        """The anti-affinity group of a namespace, in one case; "" for none."""
        return self.groups.get(namespace, "").strip().casefold()

    def binds(self, namespace: str) -> bool:
        """Tells whether a policy or a group restricts the places of the namespace's bundles."""
        return self.by_namespace[namespace] is not None or self.group_of(namespace) != ""

    @cached_property
    def shared(self) -> Mapping[str, bool]:
        """Tells whether a broker is for namespaces without a policy: no policy has its host to
        itself.

        The mapping takes any broker id.
        """
        primaries = [policy.primary for policy in self.isolation.values()]

        def is_shared(broker: str) -> bool:
            host = host_of(broker)
            return bool(host) and not any(_matches(patterns, host) for patterns in primaries)

        return _Remembered(is_shared)

    def namespaces_in(self, group: str) -> Iterator[str]:
        """The namespaces of an anti-affinity group, by its name as `group_of` has it."""
        return (each for each in self.groups if group and self.group_of(each) == group)

    def domains_by_broker(self) -> dict[str, str]:
        """The failure domain of each broker that is in one; among several, the first by name."""
        return {
            broker: name
            for name in sorted(self.domains, reverse=True)
            for broker in self.domains[name].brokers
        }


NO_POLICIES: Final = Policies()


def host_of(broker: str) -> str:
    """The host of a broker id; "" if it is no broker id.

    >>> host_of("b1.example:8080"), host_of("b1")
    ('b1.example', '')
    """
    return broker.rpartition(":")[0]


def policies_of(state: StateQueries) -> Policies:
    """Everything that the log says of it now. It looks at every namespace: keep the answer until a
    placement policy or a namespace has changed.
    """
    return Policies(
        isolation={
            name: IsolationPolicy(
                policy.namespaces,
                policy.primary,
                policy.secondary,
                policy.min_limit,
                policy.usage_threshold,
            )
            for name, policy in state.placements(PolicyKind.ISOLATION)
        },
        domains={
            name: FailureDomain(policy.brokers)
            for name, policy in state.placements(PolicyKind.DOMAIN)
        },
        groups={
            namespace: info.anti_affinity
            for tenant in state.tenants()
            for namespace in state.namespaces(tenant)
            if (info := state.namespace(namespace)) is not None and info.anti_affinity
        },
    )


def _matches(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)


class _Remembered(dict[str, _Found], Generic[_Found]):
    """The result for each broker or namespace, looked up once, because expressions are slow."""

    def __init__(self, look: Callable[[str], _Found]) -> None:
        super().__init__()
        self._look = look

    def __missing__(self, name: str) -> _Found:
        if len(self) >= _REMEMBERED_MAX:
            self.clear()
        found = self[name] = self._look(name)
        return found
