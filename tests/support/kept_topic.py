"""A topic with messages, for tests of what is kept of them and for whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.core.subscriptions.subscription import Subscription, SubscriptionKind
from support import steady
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster

NAME = "public/default/orders"
NOW = {"scalableTopicRetentionSeconds": 0}  # what all have read may go at once


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


async def made(
    node: MemoryNode, kind: SubscriptionKind = SubscriptionKind.STREAM, start: int = EARLIEST
) -> str:
    """The Kafka group of a new subscription."""
    topics = node.operations.topics
    await topics.consumers.create(NAME, "billing", kind, start)
    return topics.access.group_id(NAME, "billing", billing(topics))


def billing(topics: TopicOperations) -> Subscription:
    return topics.consumers.known(NAME, "billing")
