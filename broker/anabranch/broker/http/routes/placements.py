"""Limits on the places of bundles: isolation policies, failure domains, anti-affinity groups."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import PlainTextResponse, Response

from anabranch import admin
from anabranch.broker.errors import NotFoundError, OperationError, PreconditionError
from anabranch.broker.http.errors import MalformedError
from anabranch.broker.http.routing import BODY, Home, RouteGroup
from anabranch.broker.operations import Operations
from anabranch.broker.placements import BrokerIsolation
from anabranch.core.balance.policies import IsolationPolicy
from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind, check_isolation
from anabranch.core.errors import InvalidInputError
from anabranch.core.policies.patterns import check_patterns

_CLUSTER: Final = "/clusters/{cluster}"
_GroupName = Annotated[msgspec.Raw, BODY, Meta(description="Its name, as JSON or bare text.")]
_GROUP: Final = "/namespaces/{tenant}/{namespace}/antiAffinity"


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request, in known fields."""


class ParametersWanted(_Wanted):
    """The condition on which other brokers than the primary ones help out.

    Secondary brokers may be chosen while fewer primary ones than `min_limit` are there.
    `usage_threshold` is in percent; it is kept, and decides nothing. Pulsar's clients send both as
    text.
    """

    min_limit: int | str = 0
    usage_threshold: int | str = 100


class FailoverWanted(_Wanted):
    """The answer to missing primary brokers."""

    policy_type: Literal["min_available"] = "min_available"
    parameters: ParametersWanted = msgspec.field(default_factory=ParametersWanted)


class IsolationWanted(_Wanted):
    """The brokers that the bundles of some namespaces belong to.

    All are patterns of whole names: those of namespaces, and brokers' hosts or ids, host:port.
    """

    namespaces: list[str] = []
    primary: list[str] = []
    secondary: list[str] = []
    auto_failover_policy: FailoverWanted = msgspec.field(default_factory=FailoverWanted)

    def policy(self) -> IsolationPolicy:
        """The policy, checked. Raises MalformedError."""
        parameters = self.auto_failover_policy.parameters
        found = IsolationPolicy(
            namespaces=tuple(self.namespaces),
            primary=tuple(self.primary),
            secondary=tuple(self.secondary),
            min_limit=_whole("min_limit", parameters.min_limit),
            usage_threshold=_whole("usage_threshold", parameters.usage_threshold),
        )
        try:
            check_isolation(
                found.namespaces,
                found.primary,
                found.secondary,
                found.min_limit,
                found.usage_threshold,
            )
            check_patterns((*found.namespaces, *found.primary, *found.secondary))
        except InvalidInputError as error:
            raise MalformedError(f"the body is not of its form: {error}") from None
        return found


class DomainWanted(_Wanted):
    """Brokers that fail together, by their ids, host:port."""

    brokers: list[str]


def _whole(name: str, value: int | str) -> int:
    """Raises MalformedError."""
    try:
        return msgspec.convert(value, int, strict=False)
    except msgspec.ValidationError:
        raise MalformedError(
            f"the body is not of its form: {name} is {value!r:.40}, which is no number"
        ) from None


def routes(operations: Operations, cluster: str) -> RouteGroup:
    """The routes of all three."""
    found = RouteGroup("placement policies", "/admin/v2")
    _isolation(found, operations, cluster)
    _domains(found, operations, cluster)
    _groups(found, operations, cluster)
    return found


def check_cluster(cluster: str, mine: str, kind: type[OperationError] = NotFoundError) -> None:
    """Raises an error of that kind for the name of another cluster."""
    if cluster != mine:
        raise kind(f"Cluster {cluster} does not exist; this one is {mine}")


def _data(policy: PlacementPolicy) -> admin.IsolationData:
    limits = admin.FailoverParameters(policy.min_limit, policy.usage_threshold)
    return admin.IsolationData(
        namespaces=list(policy.namespaces),
        primary=list(policy.primary),
        secondary=list(policy.secondary),
        auto_failover_policy=admin.FailoverPolicy("min_available", limits),
    )


def _of_broker(found: BrokerIsolation) -> admin.BrokerIsolationData:
    return admin.BrokerIsolationData(
        found.broker, found.policy, found.is_primary, list(found.namespaces)
    )


def _isolation(routes: RouteGroup, operations: Operations, mine: str) -> None:
    placements, path = operations.placements, f"{_CLUSTER}/namespaceIsolationPolicies"

    @routes.get(path)
    async def list_isolation_policies(cluster: str) -> dict[str, admin.IsolationData]:
        """All isolation policies, by name."""
        check_cluster(cluster, mine)
        found = placements.policies(PolicyKind.ISOLATION)
        return {name: _data(policy) for name, policy in found.items()}

    @routes.get(f"{path}/brokers")
    async def list_isolated_brokers(cluster: str) -> list[admin.BrokerIsolationData]:
        """The policies' words on the brokers that serve now."""
        check_cluster(cluster, mine)
        return [_of_broker(each) for each in placements.isolation_of(operations.brokers())]

    @routes.get(f"{path}/{{policy}}")
    async def get_isolation_policy(cluster: str, policy: str) -> admin.IsolationData:
        """One isolation policy."""
        check_cluster(cluster, mine)
        return _data(placements.policy(PolicyKind.ISOLATION, policy))

    @routes.post(f"{path}/{{policy}}")
    async def set_isolation_policy(cluster: str, policy: str, wanted: IsolationWanted) -> None:
        """Creates an isolation policy, or replaces its content. Bundles are not moved by that."""
        check_cluster(cluster, mine, PreconditionError)
        await placements.set_isolation(policy, wanted.policy())

    @routes.delete(f"{path}/{{policy}}")
    async def delete_isolation_policy(cluster: str, policy: str) -> None:
        """Deletes an isolation policy."""
        check_cluster(cluster, mine, PreconditionError)
        await placements.delete(PolicyKind.ISOLATION, policy)


def _domains(routes: RouteGroup, operations: Operations, mine: str) -> None:
    placements, path = operations.placements, f"{_CLUSTER}/failureDomains"

    @routes.get(path)
    async def list_failure_domains(cluster: str) -> dict[str, admin.FailureDomainData]:
        """All failure domains, by name."""
        check_cluster(cluster, mine)
        found = placements.policies(PolicyKind.DOMAIN)
        return {name: admin.FailureDomainData(list(each.brokers)) for name, each in found.items()}

    @routes.get(f"{path}/{{domain}}")
    async def get_failure_domain(cluster: str, domain: str) -> admin.FailureDomainData:
        """One failure domain."""
        check_cluster(cluster, mine)
        return admin.FailureDomainData(list(placements.policy(PolicyKind.DOMAIN, domain).brokers))

    @routes.post(f"{path}/{{domain}}")
    async def set_failure_domain(cluster: str, domain: str, wanted: DomainWanted) -> None:
        """Creates a failure domain, or replaces its brokers; each is in one domain at most."""
        check_cluster(cluster, mine, PreconditionError)
        await placements.set_domain(domain, wanted.brokers)

    @routes.delete(f"{path}/{{domain}}")
    async def delete_failure_domain(cluster: str, domain: str) -> None:
        """Deletes a failure domain; its brokers stay."""
        check_cluster(cluster, mine, PreconditionError)
        await placements.delete(PolicyKind.DOMAIN, domain)


def _text(body: msgspec.Raw) -> str:
    """A name as JSON or, as Pulsar's Java client sends it, as bare text. Raises MalformedError."""
    try:
        if bytes(body).lstrip()[:1] in (b'"', b"{", b"["):
            return msgspec.json.decode(body, type=str)
        return bytes(body).decode().strip()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"the body is not JSON: {error}; send valid JSON") from None


def _groups(routes: RouteGroup, operations: Operations, mine: str) -> None:
    placements = operations.placements

    @routes.get(_GROUP)
    async def get_anti_affinity_group(home: Home) -> Response:
        """The anti-affinity group of a namespace, as bare text; 204 where it is in none."""
        group = placements.group(home)
        return PlainTextResponse(group) if group else Response(status_code=204)

    @routes.post(_GROUP)
    async def set_anti_affinity_group(home: Home, group: _GroupName) -> None:
        """Puts a namespace into an anti-affinity group: its bundles keep apart from those of the
        group's other namespaces.
        """
        name = _text(group)
        if not name:
            raise PreconditionError(
                "anti-affinity group can't be empty; DELETE takes it out of one"
            )
        await placements.set_group(home, name)

    @routes.delete(_GROUP)
    async def remove_anti_affinity_group(home: Home) -> None:
        """Takes a namespace out of its anti-affinity group."""
        await placements.set_group(home, "")
