"""Nodes in memory that ask who comes, on their real ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.http.app import create_app
from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.security.node import NodeSecurity, node_security
from anabranch.channel.codec import read_entry
from anabranch.core.log.records import Record
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import WireServer
from support.http import PATIENT
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster
from support.tokens import secret_file, token
from support.wire import HOST, Raw, raw

ROOT = "root"  # a superuser


class SecuredNode:
    """One node, and ways to ask it."""

    def __init__(self, node: MemoryNode, security: NodeSecurity) -> None:
        self.node = node
        self.security = security
        self.http: httpx.AsyncClient
        self.wire: WireServer

    async def ask(
        self, method: str, path: str, shown: str = "", json: object = None, **headers: str
    ) -> httpx.Response:
        """A request that shows this in its header Authorization."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if shown:
            told["Authorization"] = shown
        return await self.http.request(method, path, headers=told, json=json)

    @asynccontextmanager
    async def connect(
        self, method: str = "", data: bytes = b"", *, refreshes: bool = True, **more: object
    ) -> AsyncIterator[Raw]:
        """A connection that has sent its CONNECT; its answer is to be read."""
        async with raw(self.wire.port) as client:
            hello = pb.CommandConnect(client_version="anabranch", protocol_version=21)
            hello.feature_flags.supports_auth_refresh = refreshes
            if method:
                hello.auth_method_name = method
            if data:
                hello.auth_data = data
            for name, value in more.items():
                setattr(hello, name, value)
            client.send(commands.envelope(hello))
            yield client


def bearer(role: str, seconds: float = 3_600) -> str:
    return f"Bearer {token(role, seconds=seconds)}"


def tokens_alone(folder: Path, **more: object) -> dict[str, object]:
    """The settings of a node that takes tokens."""
    return {
        "authenticationEnabled": True,
        "authenticationProviders": "token",
        "tokenSecretKey": secret_file(folder),
        **more,
    }


@asynccontextmanager
async def secured(node: MemoryNode) -> AsyncIterator[SecuredNode]:
    security = node_security(node.settings, lambda: node.view)
    assert security is not None
    one = SecuredNode(node, security)
    await security.start()
    with bind(HOST, 0) as held, bind(HOST, 0) as binary:
        one.http = httpx.AsyncClient(
            base_url=f"http://{HOST}:{held.getsockname()[1]}", timeout=WAIT_S
        )
        app = create_app(node.operations, node.settings, node.metrics, security)
        server = HttpServer(app, held, node.settings.http_limits)
        await server.start()
        routes = sessions(node.operations, node.settings, security.guard)
        one.wire = WireServer(routes, "test", node.settings.wire_limits, security.admission)
        await one.wire.listen(binary)
        try:
            yield one
        finally:
            await one.http.aclose()
            await one.wire.stop()
            await server.stop()
            await security.stop()


@asynccontextmanager
async def secured_node(**settings: object) -> AsyncIterator[SecuredNode]:
    """One node with these settings."""
    async with (
        memory_cluster(1, **{**PATIENT, **settings}) as cluster,
        secured(cluster.nodes[0]) as node,
    ):
        yield node


async def answer_to(client: Raw, command: object) -> BaseCommand:
    """What comes back for one command."""
    client.send(commands.envelope(command))  # type: ignore[arg-type]  # each is a message
    return await client.told()


def records(cluster: MemoryCluster) -> list[Record]:
    """All that is on the log."""
    found = (read_entry(each.key, each.value) for each in cluster.entries)
    return [record for record in found if record is not None]
