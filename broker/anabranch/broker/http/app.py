"""The application: every route, behind a node's guards."""

from __future__ import annotations

from importlib.metadata import version as package_version

from starlette.responses import Response
from starlette.types import ASGIApp

from anabranch.broker.http import lookups
from anabranch.broker.http.description import Description
from anabranch.broker.http.guards.authentication import AuthenticationMiddleware
from anabranch.broker.http.guards.origins import OriginMiddleware
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.http.lookups import ReadyReads
from anabranch.broker.http.routes import (
    brokers,
    bundles,
    cluster,
    placements,
    segments,
    subscriptions,
    tenants,
    topics,
)
from anabranch.broker.http.routing import Api, RouteGroup
from anabranch.broker.metrics.page import MetricsPage
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.node import NodeSecurity
from anabranch.broker.settings import Settings


def create_api(
    operations: Operations, settings: Settings, metrics: Metrics, guard: AccessGuard | None = None
) -> Api:
    """All routes. `guard`: asked of each request; None: of none."""
    version = package_version("anabranch")
    pages = RouteGroup("probes")
    described = [
        each
        for group in (
            lookups.routes(operations),
            tenants.routes(operations, settings),
            placements.routes(operations, settings.cluster_name),
            bundles.routes(operations, guard),
            topics.routes(operations.topics, operations.adoptions, operations.topic_list_limiter),
            subscriptions.routes(operations.topics, guard),
            segments.routes(operations.topics),
            cluster.routes(operations),
            brokers.routes(operations, settings, version, guard),
            brokers.probes(operations),
        )
        for each in group.all
    ]

    @pages.get("/metrics")
    async def get_metrics() -> Response:
        """Figures for Prometheus."""
        return MetricsPage(metrics.registry)

    described += pages.all
    description = Description(described, version)
    documentation = RouteGroup("documentation")

    @documentation.get("/docs")
    async def get_docs() -> Response:
        """All of this as a page."""
        return await description.page()

    @documentation.get("/openapi.json")
    async def get_openapi() -> Response:
        """All of this for programs."""
        return await description.openapi()

    return Api([*described, *documentation.all], operations, guard)


def create_app(
    operations: Operations,
    settings: Settings,
    metrics: Metrics,
    security: NodeSecurity | None = None,
) -> ASGIApp:
    """Returns the application that a server runs.

    `security`: None if requests need no credentials.
    """
    guard = security.guard if security is not None else None
    api = create_api(operations, settings, metrics, guard)
    guarded = GuardMiddleware(api, settings.http_limits)
    served: ASGIApp = ReadyReads(guarded, operations, guard)
    if security is not None:
        served = AuthenticationMiddleware(served, security.authenticator)
    return OriginMiddleware(served, settings)
