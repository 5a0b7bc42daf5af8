"""Tenants: `/admin/v2/tenants`, and the clusters they may be allowed to use."""

from __future__ import annotations

from fastapi import APIRouter, Response

from anabranch.broker.errors import NotFoundError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import ClusterData, TenantInfo
from anabranch.broker.http.routing import DecidingRoute, Marked
from anabranch.broker.operations import Operations
from anabranch.broker.settings import Settings
from anabranch.core import names


def router(operations: Operations, settings: Settings) -> APIRouter:
    """The routes of tenants and clusters."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2", tags=["tenants"])
    mine = settings.cluster_name

    @routes.get("/clusters", dependencies=[Marked])
    async def list_clusters() -> list[str]:
        """The one cluster that this node belongs to."""
        return [mine]

    @routes.get("/clusters/{cluster}", dependencies=[Marked], responses=problems(404))
    async def get_cluster(cluster: str) -> ClusterData:
        """The cluster's addresses: this node's, as any other's."""
        if cluster != mine:
            raise NotFoundError(f"Cluster {cluster} does not exist; this one is {mine}")
        return ClusterData(
            serviceUrl=settings.web_url,
            serviceUrlTls=settings.web_url_tls,
            brokerServiceUrl=settings.service_url,
            brokerServiceUrlTls=settings.service_url_tls,
        )

    @routes.get("/tenants", dependencies=[Marked])
    async def list_tenants() -> list[str]:
        """Names of all tenants."""
        return operations.tenancy.tenants()

    @routes.get("/tenants/{tenant}", dependencies=[Marked], responses=problems(404, 412))
    async def get_tenant(tenant: str) -> TenantInfo:
        """A tenant's roles and clusters."""
        found = operations.tenancy.tenant(names.tenant(tenant))
        return TenantInfo(
            adminRoles=list(found.admin_roles), allowedClusters=list(found.allowed_clusters)
        )

    @routes.put("/tenants/{tenant}", status_code=204, responses=problems(400, 409, 412, 503, 504))
    async def create_tenant(tenant: str, info: TenantInfo | None = None) -> Response:
        """Creates a tenant."""
        wanted = info or TenantInfo(adminRoles=[], allowedClusters=[])
        await operations.tenancy.create_tenant(
            names.tenant(tenant), wanted.adminRoles, wanted.allowedClusters
        )
        return Response(status_code=204)

    @routes.post(
        "/tenants/{tenant}", status_code=204, responses=problems(400, 404, 409, 412, 503, 504)
    )
    async def update_tenant(tenant: str, info: TenantInfo) -> Response:
        """Replaces a tenant's roles and clusters."""
        await operations.tenancy.update_tenant(
            names.tenant(tenant), info.adminRoles, info.allowedClusters
        )
        return Response(status_code=204)

    @routes.delete(
        "/tenants/{tenant}", status_code=204, responses=problems(404, 409, 412, 503, 504)
    )
    async def delete_tenant(tenant: str) -> Response:
        """Deletes a tenant that has no namespaces left."""
        await operations.tenancy.delete_tenant(names.tenant(tenant))
        return Response(status_code=204)

    return routes
