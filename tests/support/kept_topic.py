"""A topic with messages, for tests of what is kept of them and for whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support import steady
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster

NAME = "public/default/orders"


def run(test: Callable[[MemoryCluster, MemoryNode], Awaitable[None]], **settings: object) -> None:
    """A node that has a topic of one segment with 10 records in each of 4 buckets."""
    given = {"brokerServicePort": 7000, "scalableTopicAutoScaleEnabled": False, **settings}

    async def body() -> None:
        async with memory_cluster(1, **PATIENT, **given) as cluster:
            (node,) = cluster.nodes
            await node.operations.topics.create(NAME, 1, {})
            (kafka,) = cluster.segments.ends
            cluster.segments.ends[kafka] = [10, 10, 10, 10]
            await test(cluster, node)

    steady.run(body())
