"""The application: every route, the errors' answers, and the reads in front."""

from __future__ import annotations

import socket
from importlib.metadata import version as package_version

from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from anabranch.broker.http.docs.description import describe
from anabranch.broker.http.docs.pages import DocumentationPages
from anabranch.broker.http.errors import answer_errors
from anabranch.broker.http.guards.authentication import AuthenticationMiddleware
from anabranch.broker.http.guards.origins import behind_origins
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.http.routes import (
    autoscale,
    balance,
    brokers,
    bundle_backlogs,
    bundles,
    configuration,
    placements,
    reads,
    segments,
    subscriptions,
    topics,
    unloads,
)
from anabranch.broker.http.routes.tenants import limits, namespaces, permissions, tenants
from anabranch.broker.http.routing import DecidingRoute
from anabranch.broker.http.server import HttpServer
from anabranch.broker.metrics.page import MetricsPage
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.node import NodeSecurity
from anabranch.broker.settings import Settings


def create_api(
    operations: Operations, settings: Settings, metrics: Metrics, guard: AccessGuard | None = None
) -> FastAPI:
    """All routes. `guard`: asked of each request; None: of none."""
    version = package_version("anabranch")
    cluster = settings.cluster_name
    api = FastAPI(
        title="Anabranch",
        version=version,
        description="Look-ups and administration, with the paths, bodies and status codes of "
        "Pulsar's admin REST. Refusals are JSON: a `reason` that names the thing and the remedy.",
        redirect_slashes=False,
        openapi_url=None,  # FastAPI would make it anew for each request
        docs_url=None,  # and its pages load their scripts from another host
        redoc_url=None,
    )
    api.state.operations = operations
    api.state.guard = guard
    api.router.route_class = DecidingRoute
    answer_errors(api)
    http_limits = settings.http_limits
    api.add_middleware(GuardMiddleware, limits=http_limits)
    api.include_router(reads.router(operations))
    api.include_router(tenants.router(operations, settings))
    api.include_router(placements.router(operations, cluster))
    api.include_router(namespaces.router(operations, cluster))
    api.include_router(limits.router(operations.limits))
    api.include_router(permissions.router(operations.permissions))
    api.include_router(bundles.router(operations))
    api.include_router(bundle_backlogs.router(operations))
    api.include_router(unloads.router(operations, guard))
    api.include_router(topics.router(operations.topics, operations.topic_list_limiter))
    api.include_router(subscriptions.router(operations.topics, guard))
    api.include_router(segments.router(operations.topics))
    api.include_router(autoscale.router(operations.topics.policies))
    api.include_router(balance.router(operations.balance))
    api.include_router(configuration.router(operations.configuration))
    api.include_router(brokers.router(operations, settings, version, guard))
    api.include_router(brokers.probes(operations))

    @api.get("/metrics", tags=["probes"], response_class=Response)
    async def get_metrics() -> Response:
        """Figures for Prometheus."""
        return MetricsPage(metrics.registry)

    pages = DocumentationPages(api)

    @api.get("/docs", include_in_schema=False, response_class=Response)
    async def get_docs() -> Response:
        """All of this as a page."""
        return await pages.page()

    @api.get("/openapi.json", include_in_schema=False, response_class=Response)
    async def get_openapi() -> Response:
        """All of this for programs."""
        return await pages.description()

    describe(api)
    return api


def create_server(
    operations: Operations,
    settings: Settings,
    metrics: Metrics,
    held: socket.socket | None,
    security: NodeSecurity | None = None,
) -> HttpServer:
    """Returns a node's server, on the bound socket of its port without TLS if it has one.

    `security`: None if requests need no credentials.
    """
    app = create_app(operations, settings, metrics, security)
    return HttpServer(app, held, settings.http_limits)


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
    served: ASGIApp = reads.ReadMiddleware(api, operations, guard)
    if security is not None:
        served = AuthenticationMiddleware(served, security.authenticator, security.guard)
    return behind_origins(served, settings)
