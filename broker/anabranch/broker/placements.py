"""Isolation policies, failure domains and anti-affinity groups: changed by records of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.broker.changing import Changing
from anabranch.broker.errors import (
    ConflictError,
    NotFoundError,
    PreconditionError,
    listed,
    no_namespace,
)
from anabranch.core.balance.policies import IsolationPolicy, Standing, policies_of
from anabranch.core.entities.placement_policy import (
    PlacementPolicy,
    PolicyKind,
    check_domain,
    check_group,
    check_name,
)
from anabranch.core.log.records import NamespaceChange, PlacementPolicyChange, PolicyOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace

_WORDS = {
    PolicyKind.ISOLATION: "NamespaceIsolationPolicy",
    PolicyKind.DOMAIN: "Failure domain",
}


class BrokerIsolation(msgspec.Struct, frozen=True):
    """One isolation policy's standing for one broker."""

    broker: str
    policy: str
    is_primary: bool
    namespaces: tuple[str, ...]


class PlacementPolicies(Changing):
    """The requests about where things may be placed; words and codes are Pulsar's."""

    # --- policies -----------------------------------------------------------------------

    def policies(self, kind: PolicyKind) -> dict[str, PlacementPolicy]:
        """All of a kind, by name."""
        return dict(self._runtime.view.placements(kind))

    def policy(self, kind: PolicyKind, name: str) -> PlacementPolicy:
        """Raises NotFoundError."""
        found = self._runtime.view.placement(kind, name)
        if found is None:
            raise NotFoundError(f"{_WORDS[kind]} {name} does not exist")
        return found

    async def set_isolation(self, name: str, wanted: IsolationPolicy) -> None:
        """Creates the policy, or replaces its content."""
        await self._set(
            PolicyKind.ISOLATION,
            name,
            namespaces=wanted.namespaces,
            primary=wanted.primary,
            secondary=wanted.secondary,
            min_limit=wanted.min_limit,
            usage_threshold=wanted.usage_threshold,
        )

    async def set_domain(self, name: str, brokers: Sequence[str]) -> None:
        """Creates the domain, or replaces its brokers, which must have been in the cluster."""
        members = tuple(sorted(brokers))
        check_domain(members)
        unknown = [each for each in members if self._runtime.view.session(each) is None]
        if unknown:
            raise PreconditionError(
                f"brokers {listed(unknown)} have never been in this cluster: GET "
                "/admin/v2/brokers lists those that serve now"
            )
        await self._set(PolicyKind.DOMAIN, name, brokers=members)

    async def _set(self, kind: PolicyKind, name: str, **fields: Any) -> None:
        check_name(name)
        members = set(fields.get("brokers", ()))

        def build() -> PlacementPolicyChange | None:
            view = self._runtime.view
            for other, domain in view.placements(PolicyKind.DOMAIN):
                shared = members.intersection(domain.brokers) if other != name else ()
                if shared:
                    raise ConflictError(
                        f"broker {min(shared)} is in failure domain {other} already; take it out "
                        "of that first"
                    )
            before = view.placement(kind, name)
            if before is not None and all(
                getattr(before, field) == value for field, value in fields.items()
            ):
                return None
            return self._written(PlacementPolicyChange, before, kind=kind, name=name, **fields)

        await self._settle(build)

    async def delete(self, kind: PolicyKind, name: str) -> None:
        """Raises NotFoundError for one that is not there."""

        def build() -> PlacementPolicyChange:
            before = self.policy(kind, name)
            return self._deleted(PlacementPolicyChange, before, kind=kind, name=name)

        await self._settle(build)

    def isolation_of(self, brokers: Sequence[str]) -> list[BrokerIsolation]:
        """Returns each policy that names one of the brokers, in the brokers' order."""
        isolation = policies_of(self._runtime.view).isolation
        return [
            BrokerIsolation(broker, name, standing is Standing.PRIMARY, policy.namespaces)
            for broker in brokers
            for name, policy in sorted(isolation.items())
            if (standing := policy.standing(broker)) is not Standing.OUT
        ]

    # --- anti-affinity groups -----------------------------------------------------------

    def group(self, ns: Namespace) -> str:
        """The anti-affinity group of a namespace, "" for none. Raises NotFoundError."""
        return self._runtime.namespace(ns).anti_affinity

    async def set_group(self, ns: Namespace, group: str) -> None:
        """Puts the namespace into a group; "" takes it out of any."""
        if group:
            check_group(group)

        def build() -> NamespaceChange | None:
            if self._runtime.namespace(ns).anti_affinity == group:
                return None
            return self._namespace_change(ns, PolicyOp.UPDATE, anti_affinity=group)

        def gone() -> NotFoundError:
            return no_namespace(ns)

        await self._settle(build, {Verdict.UNKNOWN_NAMESPACE: gone, Verdict.UNKNOWN_TENANT: gone})
