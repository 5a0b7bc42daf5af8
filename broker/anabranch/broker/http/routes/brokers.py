"""Brokers and this node's own state: `/admin/v2/brokers`, health, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from anabranch.broker.errors import NotFoundError, UnavailableError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import (
    BrokerAddresses,
    LeaderBroker,
    NamespaceOwnershipStatus,
    NodeStatus,
)
from anabranch.broker.http.routing import DecidingRoute, Marked
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.core import names
from anabranch.core.effects import BrokerState
from anabranch.core.security.resources import CLUSTER
from anabranch.core.security.table import SEEING_CONCERNS


def router(
    operations: Operations, settings: Settings, version: str, guard: AccessGuard | None
) -> APIRouter:
    """The routes of brokers. `guard`: checks the right to concerns; None: there is no check."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/brokers", tags=["brokers"])
    _add_this_node(routes, operations, settings, version, guard)
    cluster_name = settings.cluster_name

    @routes.get("", dependencies=[Marked])
    async def list_brokers() -> list[str]:
        """Ids, host:port, of the brokers that serve now."""
        return operations.brokers()

    @routes.get("/leaderBroker", dependencies=[Marked], responses=problems(404))
    async def get_leader() -> LeaderBroker:
        """The broker that leads."""
        leader = operations.leader()
        if not leader:
            raise NotFoundError("Couldn't find leader broker: an election is under way; ask again")
        located = operations.lookups.locate_broker(leader)
        url = (located.web_url or located.web_url_tls) if located else ""
        return LeaderBroker(brokerId=leader, serviceUrl=url or f"http://{leader}")

    _add_addresses(routes, operations)  # before the next, whose path would swallow it

    @routes.get("/{cluster}", dependencies=[Marked], responses=problems(404))
    async def list_brokers_of_cluster(cluster: str) -> list[str]:
        """The same, for a cluster by its name."""
        _check_cluster(cluster, cluster_name)
        return operations.brokers()

    @routes.get(
        "/{cluster}/{broker}/ownedNamespaces",
        dependencies=[Marked],
        responses=problems(404, 412),
    )
    async def list_owned(cluster: str, broker: str) -> dict[str, NamespaceOwnershipStatus]:
        """The bundles that a broker owns."""
        _check_cluster(cluster, cluster_name)
        owned = operations.owned(names.broker_id(broker))
        return {unit: NamespaceOwnershipStatus() for unit, _ in owned}

    return routes


def _add_addresses(routes: APIRouter, operations: Operations) -> None:
    @routes.get("/addresses", dependencies=[Marked])
    async def list_addresses() -> list[BrokerAddresses]:
        """The addresses of each broker that serves now, one for each of its ports (Anabranch's
        own).
        """
        found = (operations.lookups.locate_broker(each) for each in operations.brokers())
        return [
            BrokerAddresses(
                brokerId=each.broker,
                webServiceUrl=each.web_url,
                webServiceUrlTls=each.web_url_tls,
                brokerServiceUrl=each.service_url,
                brokerServiceUrlTls=each.service_url_tls,
            )
            for each in found
            if each is not None
        ]


def _add_this_node(
    routes: APIRouter,
    operations: Operations,
    settings: Settings,
    version: str,
    guard: AccessGuard | None,
) -> None:
    @routes.get("/health", response_class=PlainTextResponse, responses=problems(503))
    async def check_health() -> str:
        """`ok` while this node holds its lease and follows the log, so that it may own bundles.

        Its concerns follow, a line each: people should look at them all the same.
        """
        return "\n".join((_ok(operations), *operations.concerns()))

    @routes.get("/ready", response_class=PlainTextResponse, responses=problems(503))
    async def check_ready() -> str:
        """`ok` once this node serves requests."""
        return _ok(operations)

    @routes.get("/version", response_class=PlainTextResponse)
    async def get_version() -> str:
        """This node's version."""
        return version

    @routes.get("/status")
    async def get_status() -> NodeStatus:
        """This node's mode, its lease, and its place in the log (Anabranch's own).

        Its concerns name topics and roles. So a principal that may not ask for its health is told
        of none.
        """
        found = operations.position()
        is_told = guard is None or guard.may(requester(), SEEING_CONCERNS, CLUSTER)
        return NodeStatus(
            brokerId=settings.broker_id,
            clusterName=settings.cluster_name,
            serviceUrl=settings.service_url,
            serviceUrlTls=settings.service_url_tls,
            version=version,
            mode=found.mode,
            leader=operations.leader(),
            nextOffset=found.next_offset,
            digest=found.digest,
            horizon=found.horizon,
            leaseMillis=found.lease_remaining_ms,
            concerns=operations.concerns() if is_told else [],
        )


def probes(operations: Operations) -> APIRouter:
    """The routes that load balancers and container platforms ask."""
    routes = APIRouter(route_class=DecidingRoute, tags=["probes"])

    @routes.get("/livez", response_class=PlainTextResponse)
    async def check_alive() -> str:
        """`ok` while the process answers at all."""
        return "ok"

    @routes.get("/readyz", response_class=PlainTextResponse, responses=problems(503))
    async def check_ready() -> str:
        """The same as /admin/v2/brokers/ready."""
        return _ok(operations)

    @routes.get("/status.html", response_class=PlainTextResponse, responses=problems(503))
    async def check_status_page() -> str:
        """`OK` when ready: the page that load balancers in front of Pulsar ask for."""
        return _ok(operations).upper()

    return routes


def _ok(operations: Operations) -> str:
    position = operations.position()
    if position.mode != BrokerState.SERVING.value or not position.lease_remaining_ms:
        raise UnavailableError(f"this node does not serve now: its mode is {position.mode}")
    return "ok"


def _check_cluster(cluster: str, mine: str) -> None:
    if cluster != mine:
        raise NotFoundError(
            f"there is no path of that name here, nor a cluster {cluster}: this one is {mine}, and "
            "/openapi.json lists all paths"
        )
