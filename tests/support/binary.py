"""Nodes of a cluster in memory behind their real binary ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.broker.binary.sessions import lookups, open_sessions
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection
from anabranch.wire.server.server import OpenSession
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster
from support.wire import connected, serving


@asynccontextmanager
async def client_of(node: MemoryNode, *parts: OpenSession) -> AsyncIterator[ClientConnection]:
    """A connection to the node, which serves look-ups and those parts."""
    routes = open_sessions(lookups(node.operations), *parts)
    async with serving(routes) as server, connected(server) as client:
        yield client


@asynccontextmanager
async def reachable(count: int = 1, **settings: object) -> AsyncIterator[MemoryCluster]:
    """That many nodes, which clients may think to reach at one port."""
    named = {**PATIENT, "brokerServicePort": 7000, **settings}
    async with memory_cluster(count, **named) as cluster:
        yield cluster


@asynccontextmanager
async def one_node(**settings: object) -> AsyncIterator[MemoryNode]:
    """The only node of such a cluster."""
    async with reachable(1, **settings) as cluster:
        yield cluster.nodes[0]


def subscribe(topic: str, consumer_id: int = 1, **more: Any) -> pb.CommandScalableTopicSubscribe:
    """What a consumer says that shares a topic by STREAM; the fields that it names may differ."""
    said: dict[str, Any] = {
        "request_id": 1,
        "topic": f"topic://{topic}",
        "subscription": "billing",
        "consumer_name": f"c-{consumer_id}",
        "consumer_id": consumer_id,
        "consumer_type": pb.ScalableConsumerType.STREAM,
        "instance": consumer_id,
        **more,
    }
    return pb.CommandScalableTopicSubscribe(**said)
