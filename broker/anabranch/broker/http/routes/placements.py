"""Limits on the places of bundles: isolation policies, failure domains, anti-affinity groups."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.placements import (
    BrokerIsolationData,
    FailoverParameters,
    FailoverPolicy,
    FailureDomainData,
    IsolationData,
)
from anabranch.broker.http.routing import DecidingRoute, Home, Marked
from anabranch.broker.operations import Operations
from anabranch.broker.placements import BrokerIsolation
from anabranch.core import names
from anabranch.core.balance.policies import IsolationPolicy
from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind

_POLICIES = "/clusters/{cluster}/namespaceIsolationPolicies"
_DOMAINS = "/clusters/{cluster}/failureDomains"
_GROUP = "/namespaces/{tenant}/{namespace}/antiAffinity"
_Name = Annotated[str, Path(description="The policy's name.")]


def router(operations: Operations, cluster: str) -> APIRouter:
    """The routes of all three."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2", tags=["placement policies"])
    _add_isolation(routes, operations, cluster)
    _add_domains(routes, operations, cluster)
    _add_groups(routes, operations, cluster)
    return routes


def _read(cluster: str, mine: str) -> None:
    if cluster != mine:
        raise NotFoundError(f"Cluster {cluster} does not exist; this one is {mine}")


def _written(cluster: str, mine: str) -> None:
    if cluster != mine:
        raise PreconditionError(f"Cluster {cluster} does not exist; this one is {mine}")


def _data(policy: PlacementPolicy) -> IsolationData:
    limits = FailoverParameters(min_limit=policy.min_limit, usage_threshold=policy.usage_threshold)
    return IsolationData(
        namespaces=list(policy.namespaces),
        primary=list(policy.primary),
        secondary=list(policy.secondary),
        auto_failover_policy=FailoverPolicy(parameters=limits),
    )


def _of_broker(found: BrokerIsolation) -> BrokerIsolationData:
    return BrokerIsolationData(
        brokerName=found.broker,
        policyName=found.policy,
        primary=found.is_primary,
        namespaceRegex=list(found.namespaces),
    )


def _add_isolation(routes: APIRouter, operations: Operations, mine: str) -> None:
    placements = operations.placements

    @routes.get(_POLICIES, dependencies=[Marked], responses=problems(404))
    async def list_isolation_policies(cluster: str) -> dict[str, IsolationData]:
        """All isolation policies, by name."""
        _read(cluster, mine)
        found = placements.policies(PolicyKind.ISOLATION)
        return {name: _data(policy) for name, policy in found.items()}

    @routes.get(f"{_POLICIES}/brokers", dependencies=[Marked], responses=problems(404))
    async def list_isolated_brokers(cluster: str) -> list[BrokerIsolationData]:
        """The policies' words on the brokers that serve now."""
        _read(cluster, mine)
        return [_of_broker(each) for each in placements.isolation_of(operations.brokers())]

    @routes.get(
        f"{_POLICIES}/brokers/{{broker}}", dependencies=[Marked], responses=problems(404, 412)
    )
    async def get_isolated_broker(cluster: str, broker: str) -> list[BrokerIsolationData]:
        """The policies' words on one broker, host:port, serving or not."""
        _read(cluster, mine)
        return [_of_broker(each) for each in placements.isolation_of([names.broker_id(broker)])]

    @routes.get(f"{_POLICIES}/{{policy}}", dependencies=[Marked], responses=problems(404))
    async def get_isolation_policy(cluster: str, policy: _Name) -> IsolationData:
        """One isolation policy."""
        _read(cluster, mine)
        return _data(placements.policy(PolicyKind.ISOLATION, policy))

    @routes.post(f"{_POLICIES}/{{policy}}", status_code=204, responses=problems(400, 412, 503, 504))
    async def set_isolation_policy(cluster: str, policy: _Name, wanted: IsolationData) -> None:
        """Creates an isolation policy, or replaces its content. Bundles are not moved by that."""
        _written(cluster, mine)
        limits = wanted.auto_failover_policy.parameters
        await placements.set_isolation(
            policy,
            IsolationPolicy(
                namespaces=tuple(wanted.namespaces),
                primary=tuple(wanted.primary),
                secondary=tuple(wanted.secondary),
                min_limit=limits.min_limit,
                usage_threshold=limits.usage_threshold,
            ),
        )

    @routes.delete(
        f"{_POLICIES}/{{policy}}", status_code=204, responses=problems(404, 412, 503, 504)
    )
    async def delete_isolation_policy(cluster: str, policy: _Name) -> None:
        """Deletes an isolation policy."""
        _written(cluster, mine)
        await placements.delete(PolicyKind.ISOLATION, policy)


def _add_domains(routes: APIRouter, operations: Operations, mine: str) -> None:
    placements = operations.placements

    @routes.get(_DOMAINS, dependencies=[Marked], responses=problems(404))
    async def list_failure_domains(cluster: str) -> dict[str, FailureDomainData]:
        """All failure domains, by name."""
        _read(cluster, mine)
        found = placements.policies(PolicyKind.DOMAIN)
        return {name: FailureDomainData(brokers=list(each.brokers)) for name, each in found.items()}

    @routes.get(f"{_DOMAINS}/{{domain}}", dependencies=[Marked], responses=problems(404))
    async def get_failure_domain(cluster: str, domain: str) -> FailureDomainData:
        """One failure domain."""
        _read(cluster, mine)
        return FailureDomainData(brokers=list(placements.policy(PolicyKind.DOMAIN, domain).brokers))

    @routes.post(
        f"{_DOMAINS}/{{domain}}", status_code=204, responses=problems(400, 409, 412, 503, 504)
    )
    async def set_failure_domain(cluster: str, domain: str, wanted: FailureDomainData) -> None:
        """Creates a failure domain, or replaces its brokers; each is in one domain at most."""
        _written(cluster, mine)
        await placements.set_domain(domain, wanted.brokers)

    @routes.delete(
        f"{_DOMAINS}/{{domain}}", status_code=204, responses=problems(404, 412, 503, 504)
    )
    async def delete_failure_domain(cluster: str, domain: str) -> None:
        """Deletes a failure domain; its brokers stay."""
        _written(cluster, mine)
        await placements.delete(PolicyKind.DOMAIN, domain)


_FOUND: dict[int | str, dict[str, Any]] = {
    200: {"description": "The group's name, as bare text.", "content": {"text/plain": {}}},
    204: {"description": "It is in none."},
}

_GROUP_BODY: Final = {
    "required": True,
    "description": "Its name, as JSON or, as Pulsar's Java client sends it, as bare text.",
    "content": {"application/json": {"schema": {"type": "string"}}},
}


def _text(body: bytes) -> str:
    """A name as a client sends it. Raises RequestValidationError."""
    try:
        if body.lstrip()[:1] in (b'"', b"{", b"["):
            return msgspec.json.decode(body, type=str)
        return body.decode().strip()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fault = {"type": "json_invalid", "loc": ("body", 0), "ctx": {"error": str(error)}}
        raise RequestValidationError([fault]) from None


def _add_groups(routes: APIRouter, operations: Operations, mine: str) -> None:
    placements = operations.placements

    @routes.get(_GROUP, dependencies=[Marked], responses={**_FOUND, **problems(404, 412)})
    async def get_anti_affinity_group(home: Home) -> Response:
        """The anti-affinity group of a namespace."""
        group = placements.group(home)
        return PlainTextResponse(group) if group else Response(status_code=204)

    @routes.post(
        _GROUP,
        status_code=204,
        responses=problems(400, 404, 412, 503, 504),
        openapi_extra={"requestBody": _GROUP_BODY},
    )
    async def set_anti_affinity_group(home: Home, request: Request) -> None:
        """Puts a namespace into an anti-affinity group: its bundles keep apart from those of the
        group's other namespaces.
        """
        group = _text(await request.body())
        if not group:
            raise PreconditionError(
                "anti-affinity group can't be empty; DELETE takes it out of one"
            )
        await placements.set_group(home, group)

    @routes.delete(_GROUP, status_code=204, responses=problems(404, 412, 503, 504))
    async def remove_anti_affinity_group(home: Home) -> None:
        """Takes a namespace out of its anti-affinity group."""
        await placements.set_group(home, "")

    @routes.get(
        "/namespaces/{cluster}/antiAffinity/{group}",
        dependencies=[Marked],
        responses=problems(404),
    )
    async def get_anti_affinity_namespaces(
        cluster: str,
        group: str,
        tenant: Annotated[str, Query(description="Only namespaces of this tenant.")] = "",
    ) -> list[str]:
        """The namespaces of an anti-affinity group."""
        _read(cluster, mine)
        return placements.namespaces_in(group, tenant)
