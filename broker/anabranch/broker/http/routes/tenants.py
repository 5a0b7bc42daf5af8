"""Tenants, namespaces with their limits, and roles' rights: `/admin/v2/tenants` and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from anabranch.admin import AutoScaleOverride, Policies, TenantInfo
from anabranch.broker.errors import PreconditionError, listed
from anabranch.broker.http.errors import MalformedError
from anabranch.broker.http.routes.bundles import bundles_data, edges_of
from anabranch.broker.http.routing import BODY, Home, RouteGroup, TopicName
from anabranch.broker.operations import Operations
from anabranch.broker.settings import Settings
from anabranch.broker.tenants.limits import LIMIT_OF, TenantLimits
from anabranch.broker.tenants.permissions import GrantedActions, RolePermissions
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import NAME_LENGTH_MAX
from anabranch.core.ring import even_ranges
from anabranch.core.security.actions import Action
from anabranch.core.tenants.limits import OF_NAMESPACES, TenantLimit

# Values that Pulsar's clients send for unset policies, if they are not empty.
_UNSET: Final[Mapping[str, object]] = {
    "is_allow_auto_update_schema_with_replicator": True,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "subscription_auth_mode": "None",
}
_POLICIES_MAX: Final = 200  # Pulsar has some eighty
_LEVELS_MAX: Final = 8  # of a policy within another one; Pulsar has three
_NULL: Final = msgspec.Raw(b"null")
# Bounded so that a tenant's record stays far below what Kafka takes as one message.
_Roles = Annotated[list[Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]], Meta(max_length=1_000)]
_Actions = Annotated[
    list[str],
    BODY,
    Meta(description=f"All that the role may do there: some of {', '.join(Action)}."),
]


class TenantWanted(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A tenant's administrators, by their roles, and the clusters that it may use."""

    admin_roles: _Roles = []
    allowed_clusters: _Roles = []


class BundlesWanted(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The division of a new namespace into ranges of equal size.

    `boundaries` may be left out; if given, they are those of equal ranges.
    """

    boundaries: list[str] = []
    num_bundles: int | None = None


class PoliciesWanted(msgspec.Struct):
    """A new namespace's policies, with the count of bundles either way Pulsar's clients write it.

    The clusters may be left out, or name this cluster alone. Pulsar's clients send every policy
    that they know; a node accepts those that say nothing.
    """

    bundles: BundlesWanted | None = None
    numBundles: int | None = None
    replication_clusters: list[str] = []
    allowed_clusters: list[str] = []
    scalableTopicAutoScalePolicy: dict[str, Any] | None = None


def routes(operations: Operations, settings: Settings) -> RouteGroup:
    """The routes of all of them."""
    found = RouteGroup("tenants", "/admin/v2")
    _clusters(found, settings)
    _tenants(found, operations)
    _namespaces(found, operations, settings.cluster_name)
    for setting, what in LIMIT_OF.items():
        _limit(found, operations.limits, setting, what)
    _permissions(found, operations.permissions)
    return found


def _clusters(routes: RouteGroup, settings: Settings) -> None:
    mine = settings.cluster_name

    @routes.get("/clusters")
    async def list_clusters() -> list[str]:
        """The one cluster that this node belongs to."""
        return [mine]


def _tenants(routes: RouteGroup, operations: Operations) -> None:
    tenancy, path = operations.tenancy, "/tenants/{tenant}"

    @routes.get("/tenants")
    async def list_tenants() -> list[str]:
        """Names of all tenants."""
        return tenancy.tenants()

    @routes.get(path)
    async def get_tenant(tenant: str) -> TenantInfo:
        """A tenant's roles and clusters."""
        found = tenancy.tenant(names.tenant(tenant))
        return TenantInfo(list(found.admin_roles), list(found.allowed_clusters))

    @routes.put(path)
    async def create_tenant(tenant: str, info: TenantWanted | None = None) -> None:
        """Creates a tenant."""
        wanted = info or TenantWanted()
        await tenancy.create_tenant(
            names.tenant(tenant), wanted.admin_roles, wanted.allowed_clusters
        )

    @routes.post(path)
    async def update_tenant(tenant: str, info: TenantWanted) -> None:
        """Replaces a tenant's roles and clusters."""
        await tenancy.update_tenant(names.tenant(tenant), info.admin_roles, info.allowed_clusters)

    @routes.delete(path)
    async def delete_tenant(tenant: str) -> None:
        """Deletes a tenant that has no namespaces left."""
        await tenancy.delete_tenant(names.tenant(tenant))


def _namespaces(routes: RouteGroup, operations: Operations, cluster: str) -> None:
    auto_scale, path = operations.topics.policies, "/namespaces/{tenant}/{namespace}"

    @routes.get("/namespaces/{tenant}")
    async def list_namespaces(tenant: str) -> list[str]:
        """Names of a tenant's namespaces."""
        return operations.tenancy.namespaces(names.tenant(tenant))

    @routes.get(path)
    async def get_policies(home: Home) -> Policies:
        """A namespace's policies; its own limits and auto-scale policy are absent if unset."""
        return Policies(
            bundles=bundles_data(operations, home),
            replication_clusters=[cluster],
            scalable_topic_auto_scale_policy=cast(
                AutoScaleOverride, dict(auto_scale.of_namespace(home))
            ),
            **{each.name.lower(): operations.limits.own(home, each) for each in OF_NAMESPACES},
        )

    @routes.put(path)
    async def create_namespace(
        home: Home, policies: Annotated[dict[str, Any], BODY] | None = None
    ) -> None:
        """Creates a namespace and its bundles, as many as the settings say if the body names none.

        An auto-scale policy in the body is set once it is there.
        """
        wanted = _policies_in(policies or {}, cluster)
        override = auto_scale.checked(wanted.scalableTopicAutoScalePolicy or {})
        await operations.tenancy.create_namespace(home, _bundle_count(wanted))
        if override:
            await auto_scale.set_namespace(home, override)

    @routes.delete(path)
    async def delete_namespace(home: Home) -> None:
        """Unloads a namespace's bundles and deletes it with them."""
        await operations.delete_namespace(home)


def _policies_in(said: Mapping[str, Any], cluster: str) -> PoliciesWanted:
    """Refuses policies that would be ignored, except unset ones.

    Pulsar's Java client sends all policies that it knows.
    """
    if len(said) > _POLICIES_MAX:
        raise MalformedError(f"the body has {len(said)} policies: give at most {_POLICIES_MAX}")
    try:
        wanted = msgspec.convert(said, PoliciesWanted)
    except msgspec.ValidationError as error:
        raise MalformedError(f"the body is not of its form: {error}") from None
    extra = said.keys() - set(PoliciesWanted.__struct_fields__)
    unknown = sorted(name for name in extra if not _is_unset(name, said[name]))
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
    return wanted


def _is_unset(name: str, value: object, levels: int = _LEVELS_MAX) -> bool:
    """Raises MalformedError for a policy of too many levels."""
    if isinstance(value, Mapping):
        if not levels:
            raise MalformedError(f"the body has a policy of more than {_LEVELS_MAX} levels")
        return all(_is_unset("", each, levels - 1) for each in value.values())
    return not value or (name in _UNSET and value == _UNSET[name])


def _bundle_count(wanted: PoliciesWanted) -> int:
    """The count that the body asks for; 0 for the cluster's default."""
    nested = wanted.bundles or BundlesWanted()
    counts = [wanted.numBundles, nested.num_bundles]
    if nested.boundaries:
        counts.append(len(nested.boundaries) - 1)
    given = {count for count in counts if count is not None}
    if len(given) > 1:
        raise InvalidInputError(
            f"the body asks for {' and for '.join(map(str, sorted(given)))} bundles; give one count"
        )
    count = next(iter(given), 0)
    if given:
        ranges = even_ranges(count)
        if nested.boundaries and nested.boundaries != edges_of(map(str, ranges)):
            raise InvalidInputError(
                "boundaries of unequal bundles are not supported at creation: give numBundles, "
                "then split with specified_positions_divide"
            )
    return count


def _limit(routes: RouteGroup, limits: TenantLimits, setting: str, what: TenantLimit) -> None:
    path = f"/namespaces/{{tenant}}/{{namespace}}/{setting}"

    @routes.get(path)
    async def get_limit(home: Home) -> int | msgspec.Raw:
        """The namespace's own limit; `null` where the cluster's setting counts."""
        own = limits.own(home, what)
        return _NULL if own is None else own

    @routes.post(path)
    async def set_limit(home: Home, limit: Annotated[int, BODY]) -> None:
        """Sets the namespace's own limit, which goes before the cluster's setting; 0: any number.

        Things that are there already stay.
        """
        await limits.set(home, what, limit)

    @routes.delete(path)
    async def remove_limit(home: Home) -> None:
        """Lets the cluster's setting count again."""
        await limits.set(home, what, None)


def _permissions(routes: RouteGroup, permissions: RolePermissions) -> None:
    on_namespace = "/namespaces/{tenant}/{namespace}/permissions"
    on_topic = "/scalable/{tenant}/{namespace}/{topic}/permissions"
    one = "/{role:text}"  # slashes may stand as they are

    @routes.get(on_namespace)
    async def get_namespace_permissions(home: Home) -> GrantedActions:
        """Each role's actions on all topics of the namespace."""
        return permissions.of_namespace(home)

    @routes.post(on_namespace + one)
    async def grant_on_namespace(home: Home, role: str, actions: _Actions) -> None:
        """Lets a role do this on all topics of the namespace, and nothing else."""
        await permissions.grant(home, role, actions)

    @routes.delete(on_namespace + one)
    async def revoke_on_namespace(home: Home, role: str) -> None:
        """Takes away a role's grants on the namespace, but not those on its topics."""
        await permissions.revoke(home, role)

    @routes.get(on_topic)
    async def get_topic_permissions(name: TopicName) -> GrantedActions:
        """Each role's actions on the topic, granted on it or on its namespace."""
        return permissions.of_topic(name)

    @routes.post(on_topic + one)
    async def grant_on_topic(name: TopicName, role: str, actions: _Actions) -> None:
        """Lets a role do this on the topic, besides its actions on the namespace."""
        await permissions.grant(name, role, actions)

    @routes.delete(on_topic + one)
    async def revoke_on_topic(name: TopicName, role: str) -> None:
        """Takes away a role's grants on the topic, but not those on its namespace."""
        await permissions.revoke(name, role)
