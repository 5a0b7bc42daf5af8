"""Brokers and this node's own state: `/admin/v2/brokers`, and probes."""

from __future__ import annotations

from starlette.responses import PlainTextResponse

from anabranch import admin
from anabranch.broker.errors import NotFoundError, UnavailableError
from anabranch.broker.http.routing import RouteGroup
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.core import names
from anabranch.core.effects import BrokerState
from anabranch.core.security.resources import CLUSTER
from anabranch.core.security.table import SEEING_CONCERNS


def routes(
    operations: Operations, settings: Settings, version: str, guard: AccessGuard | None
) -> RouteGroup:
    """The routes of brokers. `guard`: checks the right to concerns; None: there is no check."""
    found = RouteGroup("brokers", "/admin/v2/brokers")
    _this_node(found, operations, settings, version, guard)
    _brokers(found, operations, settings.cluster_name)
    return found


def _brokers(routes: RouteGroup, operations: Operations, mine: str) -> None:
    @routes.get("")
    async def list_brokers() -> list[str]:
        """Ids, host:port, of the brokers that serve now."""
        return operations.brokers()

    @routes.get("/leaderBroker")
    async def get_leader() -> admin.LeaderBroker:
        """The broker that leads."""
        leader = operations.leader()
        if not leader:
            raise NotFoundError("Couldn't find leader broker: an election is under way; ask again")
        located = operations.lookups.locate_broker(leader)
        url = (located.web_url or located.web_url_tls) if located else ""
        return admin.LeaderBroker(leader, url or f"http://{leader}")

    @routes.get("/addresses")
    async def list_addresses() -> list[admin.BrokerAddresses]:
        """The addresses of each broker that serves now, one for each of its ports (Anabranch's
        own).
        """
        found = (operations.lookups.locate_broker(each) for each in operations.brokers())
        return [
            admin.BrokerAddresses(
                broker_id=each.broker,
                web_service_url=each.web_url,
                web_service_url_tls=each.web_url_tls,
                broker_service_url=each.service_url,
                broker_service_url_tls=each.service_url_tls,
            )
            for each in found
            if each is not None
        ]

    # After the others, whose paths it would swallow.
    @routes.get("/{cluster}")
    async def list_brokers_of_cluster(cluster: str) -> list[str]:
        """The same, for a cluster by its name."""
        _check_cluster(cluster, mine)
        return operations.brokers()

    @routes.get("/{cluster}/{broker}/ownedNamespaces")
    async def list_owned(cluster: str, broker: str) -> dict[str, admin.NamespaceOwnershipStatus]:
        """The bundles that a broker owns."""
        _check_cluster(cluster, mine)
        status = admin.NamespaceOwnershipStatus("shared", is_controlled=False, is_active=True)
        return {unit: status for unit, _ in operations.owned(names.broker_id(broker))}


def _this_node(
    routes: RouteGroup,
    operations: Operations,
    settings: Settings,
    version: str,
    guard: AccessGuard | None,
) -> None:
    @routes.get("/health")
    async def check_health() -> PlainTextResponse:
        """`ok` while this node holds its lease and follows the log, so that it may own bundles.

        Its concerns follow, a line each: people should look at them all the same.
        """
        return PlainTextResponse("\n".join((_ok(operations), *operations.concerns())))

    @routes.get("/ready")
    async def check_ready() -> PlainTextResponse:
        """`ok` once this node serves requests."""
        return PlainTextResponse(_ok(operations))

    @routes.get("/version")
    async def get_version() -> PlainTextResponse:
        """This node's version."""
        return PlainTextResponse(version)

    @routes.get("/status")
    async def get_status() -> admin.NodeStatus:
        """This node's mode, its lease, and its place in the log (Anabranch's own).

        Its concerns name topics and roles. So a principal that may not ask for its health is told
        of none.
        """
        found = operations.position()
        is_told = guard is None or guard.may(requester(), SEEING_CONCERNS, CLUSTER)
        return admin.NodeStatus(
            broker_id=settings.broker_id,
            cluster_name=settings.cluster_name,
            service_url=settings.service_url,
            service_url_tls=settings.service_url_tls,
            version=version,
            mode=found.mode,
            leader=operations.leader(),
            next_offset=found.next_offset,
            digest=found.digest,
            horizon=found.horizon,
            lease_millis=found.lease_remaining_ms,
            concerns=operations.concerns() if is_told else [],
        )


def probes(operations: Operations) -> RouteGroup:
    """The routes that load balancers and container platforms ask."""
    routes = RouteGroup("probes")

    @routes.get("/livez")
    async def check_alive() -> PlainTextResponse:
        """`ok` while the process answers at all."""
        return PlainTextResponse("ok")

    @routes.get("/readyz")
    async def check_ready() -> PlainTextResponse:
        """The same as /admin/v2/brokers/ready."""
        return PlainTextResponse(_ok(operations))

    @routes.get("/status.html")
    async def check_status_page() -> PlainTextResponse:
        """`OK` when ready: the page that load balancers in front of Pulsar ask for."""
        return PlainTextResponse(_ok(operations).upper())

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
