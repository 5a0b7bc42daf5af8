"""Namespaces: `/admin/v2/namespaces`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Response

from anabranch.broker.errors import PreconditionError, listed
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative, Policies, PoliciesWanted
from anabranch.broker.http.routes.bundles import bundles_data, edges_of
from anabranch.broker.http.routing import DecidingRoute, Home, Marked
from anabranch.broker.operations import Operations
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.ring import even_ranges
from anabranch.core.tenants.limits import OF_NAMESPACES

# Values that Pulsar's clients send for unset policies, if they are not empty.
_UNSET: Final[Mapping[str, object]] = {
    "is_allow_auto_update_schema_with_replicator": True,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "subscription_auth_mode": "None",
}


def router(operations: Operations, cluster: str) -> APIRouter:
    """The routes of namespaces."""
    routes = APIRouter(
        route_class=DecidingRoute, prefix="/admin/v2/namespaces", tags=["namespaces"]
    )
    auto_scale = operations.topics.policies

    @routes.get("/{tenant}", dependencies=[Marked], responses=problems(404, 412))
    async def list_namespaces(tenant: str) -> list[str]:
        """Names of a tenant's namespaces."""
        return operations.tenancy.namespaces(names.tenant(tenant))

    @routes.get(
        "/{tenant}/{namespace}",
        dependencies=[Marked],
        response_model_exclude_none=True,
        responses=problems(404, 412),
    )
    async def get_policies(home: Home) -> Policies:
        """A namespace's policies."""
        return Policies(
            bundles=bundles_data(operations, home),
            replication_clusters=[cluster],
            scalableTopicAutoScalePolicy=dict(auto_scale.of_namespace(home)) or None,
            **{each.name.lower(): operations.limits.own(home, each) for each in OF_NAMESPACES},
        )

    @routes.put(
        "/{tenant}/{namespace}",
        status_code=204,
        responses=problems(400, 404, 409, 412, 503, 504),
    )
    async def create_namespace(home: Home, policies: PoliciesWanted | None = None) -> Response:
        """Creates a namespace and its bundles, as many as the settings say if the body names none.

        An auto-scale policy in the body is set once it is there.
        """
        wanted = policies or PoliciesWanted()
        _refuse_unknown_policies(wanted, cluster)
        override = auto_scale.checked(wanted.scalableTopicAutoScalePolicy or {})
        await operations.tenancy.create_namespace(home, _bundle_count(wanted))
        if override:
            await auto_scale.set_namespace(home, override)
        return Response(status_code=204)

    @routes.delete(
        "/{tenant}/{namespace}",
        status_code=204,
        responses=problems(404, 409, 412, 503, 504),
    )
    async def delete_namespace(home: Home, authoritative: Authoritative = False) -> Response:
        """Unloads a namespace's bundles and deletes it with them."""
        await operations.delete_namespace(home)
        return Response(status_code=204)

    return routes


def _refuse_unknown_policies(wanted: PoliciesWanted, cluster: str) -> None:
    """Refuses policies that would be ignored, except unset ones.

    Pulsar's Java client sends all policies that it knows.
    """
    extra: dict[str, Any] = wanted.model_extra or {}
    unknown = sorted(name for name, value in extra.items() if not _is_unset(name, value))
    if unknown:
        raise PreconditionError(
            f"policies {listed(unknown)} are not supported by this version; leave them out"
        )
    named = dict.fromkeys((*wanted.replication_clusters, *wanted.allowed_clusters))
    others = [name for name in named if name != cluster]
    if others:
        raise PreconditionError(
            f"clusters {listed(others)} are unknown: this version has one cluster, {cluster}"
        )


def _is_unset(name: str, value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_unset("", each) for each in value.values())
    return not value or (name in _UNSET and value == _UNSET[name])


def _bundle_count(wanted: PoliciesWanted) -> int:
    """The count that the body asks for; 0 for the cluster's default."""
    nested = wanted.bundles
    counts = [wanted.numBundles, nested.numBundles if nested else None]
    if nested and nested.boundaries:
        counts.append(len(nested.boundaries) - 1)
    given = {count for count in counts if count is not None}
    if len(given) > 1:
        raise InvalidInputError(
            f"the body asks for {' and for '.join(map(str, sorted(given)))} bundles; give one count"
        )
    count = next(iter(given), 0)
    if given:
        ranges = even_ranges(count)
        if nested and nested.boundaries and nested.boundaries != edges_of(map(str, ranges)):
            raise InvalidInputError(
                "boundaries of unequal bundles are not supported at creation: give numBundles, "
                "then split with specified_positions_divide"
            )
    return count
