"""Nodes of a cluster in memory behind their real binary ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.broker.binary.handlers import lookups, open_sessions
from anabranch.wire.client import ClientConnection
from anabranch.wire.server.server import OpenSession
from support.memory_cluster import MemoryNode
from support.wire import connected, serving


@asynccontextmanager
async def client_of(node: MemoryNode, *parts: OpenSession) -> AsyncIterator[ClientConnection]:
    """A connection to the node, which serves look-ups and those parts."""
    routes = open_sessions(lookups(node.operations), *parts)
    async with serving(routes) as server, connected(server) as client:
        yield client
