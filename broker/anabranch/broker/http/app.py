"""The application: every route, the errors' answers, and the reads in front."""

from __future__ import annotations

from importlib.metadata import version as package_version

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import ASGIApp

from anabranch.broker.http.docs.description import describe
from anabranch.broker.http.docs.page import docs_page
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
    kafka,
    namespaces,
    permissions,
    placements,
    reads,
    segment_subscriptions,
    segments,
    subscriptions,
    tenants,
    topics,
    unloads,
)
from anabranch.broker.http.routing import DecidingRoute
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
        docs_url=None,  # FastAPI's pages load their scripts from another host
        redoc_url=None,
    )
    api.state.operations = operations
    api.state.guard = guard
    api.router.route_class = DecidingRoute
    answer_errors(api)
    limits = settings.http_limits
    api.add_middleware(GuardMiddleware, limits=limits)
    api.include_router(reads.router(operations))
    api.include_router(tenants.router(operations, settings))
    api.include_router(placements.router(operations, cluster))
    api.include_router(namespaces.router(operations, cluster))
    api.include_router(permissions.router(operations.permissions))
    api.include_router(bundles.router(operations))
    api.include_router(bundle_backlogs.router(operations))
    api.include_router(unloads.router(operations))
    api.include_router(topics.router(operations.topics, operations.topic_list_limiter))
    api.include_router(subscriptions.router(operations.topics))
    api.include_router(segments.router(operations.topics))
    api.include_router(autoscale.router(operations.topics.policies))
    api.include_router(segment_subscriptions.router(operations.topics))
    api.include_router(kafka.router(operations.kafka))
    api.include_router(balance.router(operations.balance))
    api.include_router(configuration.router(operations.configuration))
    api.include_router(brokers.router(operations, settings, version))
    api.include_router(brokers.probes(operations))

    @api.get("/metrics", tags=["probes"], response_class=Response)
    async def get_metrics() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @api.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def get_docs() -> HTMLResponse:
        """All of this as a page."""
        return HTMLResponse(docs_page(api.openapi()))

    describe(api)
    return api


def create_app(
    operations: Operations,
    settings: Settings,
    metrics: Metrics,
    security: NodeSecurity | None = None,
) -> ASGIApp:
    """What a server runs. `security`: None where nobody has to say who they are."""
    guard = security.guard if security is not None else None
    api = create_api(operations, settings, metrics, guard)
    served: ASGIApp = reads.ReadMiddleware(api, operations, guard)
    if security is not None:
        served = AuthenticationMiddleware(served, security.authenticator)
    return behind_origins(served, settings)
