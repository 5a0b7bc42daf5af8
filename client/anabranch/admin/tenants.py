"""Tenants: `/admin/v2/tenants`, and the clusters they may be allowed to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch.admin.calls import (
    NAMES,
    Answer,
    Async,
    AsyncGroup,
    Call,
    Group,
    Sync,
    nothing,
    path,
)
from anabranch.core import names


class TenantInfo(Answer, frozen=True):
    """A tenant's roles and clusters."""

    admin_roles: list[str]
    allowed_clusters: list[str]


class ClusterData(Answer, frozen=True):
    """Addresses of a cluster: for administration, and for clients."""

    service_url: str
    broker_service_url: str


_CLUSTER: Final = msgspec.json.Decoder(ClusterData).decode
_INFO: Final = msgspec.json.Decoder(TenantInfo).decode


def _tenant(name: str) -> str:
    return path("admin", "v2", "tenants", names.tenant(name))


def _info(admin_roles: Sequence[str], allowed_clusters: Sequence[str]) -> TenantInfo:
    return TenantInfo(admin_roles=list(admin_roles), allowed_clusters=list(allowed_clusters))


def get_clusters() -> Call[list[str]]:
    """Name of the one cluster that the node belongs to."""
    return Call("GET", path("admin", "v2", "clusters"), NAMES)


def get_cluster(cluster: str) -> Call[ClusterData]:
    """Where that cluster answers. NotFoundError for any but the node's own."""
    return Call("GET", path("admin", "v2", "clusters", cluster), _CLUSTER)


def get_tenants() -> Call[list[str]]:
    """Names of all tenants."""
    return Call("GET", path("admin", "v2", "tenants"), NAMES)


def get_tenant_info(tenant: str) -> Call[TenantInfo]:
    """A tenant's roles and clusters."""
    return Call("GET", _tenant(tenant), _INFO)


def create_tenant(
    tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str] = ()
) -> Call[None]:
    """Creates a tenant that may use those clusters: `get_clusters` has their names."""
    body = _info(admin_roles, allowed_clusters)
    return Call("PUT", _tenant(tenant), nothing, body=body)


def update_tenant(
    tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str]
) -> Call[None]:
    """Replaces a tenant's roles and clusters."""
    body = _info(admin_roles, allowed_clusters)
    return Call("POST", _tenant(tenant), nothing, body=body)


def delete_tenant(tenant: str) -> Call[None]:
    """Deletes a tenant that has no namespaces left."""
    return Call("DELETE", _tenant(tenant), nothing)


class Tenants(Group):
    """Operations on tenants."""

    get_clusters = Sync(get_clusters)
    get_cluster = Sync(get_cluster)
    get_tenants = Sync(get_tenants)
    get_tenant_info = Sync(get_tenant_info)
    create_tenant = Sync(create_tenant)
    update_tenant = Sync(update_tenant)
    delete_tenant = Sync(delete_tenant)


class AsyncTenants(AsyncGroup):
    """Operations on tenants, as coroutines."""

    get_clusters = Async(get_clusters)
    get_cluster = Async(get_cluster)
    get_tenants = Async(get_tenants)
    get_tenant_info = Async(get_tenant_info)
    create_tenant = Async(create_tenant)
    update_tenant = Async(update_tenant)
    delete_tenant = Async(delete_tenant)
