"""Tenants, `/admin/v2/tenants`, and the clusters that they may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch.admin.calls import (
    NAMES,
    Answer,
    Call,
    Resource,
    RestMethod,
    TransportT,
    nothing,
    path,
)
from anabranch.core import names


class TenantInfo(Answer, frozen=True):
    """A tenant's roles and clusters."""

    admin_roles: list[str]
    allowed_clusters: list[str]


class ClusterData(Answer, frozen=True):
    """The addresses of a cluster, for administration and for clients."""

    service_url: str
    broker_service_url: str
    service_url_tls: str = ""
    broker_service_url_tls: str = ""


_CLUSTER: Final = msgspec.json.Decoder(ClusterData).decode
_INFO: Final = msgspec.json.Decoder(TenantInfo).decode


def _tenant(name: str) -> str:
    return path("admin", "v2", "tenants", names.tenant(name))


def _info(admin_roles: Sequence[str], allowed_clusters: Sequence[str]) -> TenantInfo:
    return TenantInfo(admin_roles=list(admin_roles), allowed_clusters=list(allowed_clusters))


class Tenants(Resource[TransportT]):
    """Operations on tenants."""

    @RestMethod
    def get_clusters(self) -> Call[list[str]]:
        """Returns the name of the one cluster that the node belongs to."""
        return Call("GET", path("admin", "v2", "clusters"), NAMES)

    @RestMethod
    def get_cluster(self, cluster: str) -> Call[ClusterData]:
        """Returns the addresses of that cluster.
        Raises NotFoundError for any but the node's own.
        """
        return Call("GET", path("admin", "v2", "clusters", cluster), _CLUSTER)

    @RestMethod
    def get_tenants(self) -> Call[list[str]]:
        """Returns the names of all tenants."""
        return Call("GET", path("admin", "v2", "tenants"), NAMES)

    @RestMethod
    def get_tenant_info(self, tenant: str) -> Call[TenantInfo]:
        """Returns a tenant's roles and clusters."""
        return Call("GET", _tenant(tenant), _INFO)

    @RestMethod
    def create_tenant(
        self, tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str] = ()
    ) -> Call[None]:
        """Creates a tenant that may use those clusters. `get_clusters` returns their names."""
        body = _info(admin_roles, allowed_clusters)
        return Call("PUT", _tenant(tenant), nothing, body=body)

    @RestMethod
    def update_tenant(
        self, tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str]
    ) -> Call[None]:
        """Replaces a tenant's roles and clusters."""
        body = _info(admin_roles, allowed_clusters)
        return Call("POST", _tenant(tenant), nothing, body=body)

    @RestMethod
    def delete_tenant(self, tenant: str) -> Call[None]:
        """Deletes a tenant. A node refuses while it has namespaces."""
        return Call("DELETE", _tenant(tenant), nothing)
