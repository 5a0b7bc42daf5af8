"""A topic with messages, for tests of what is kept of them and for whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.kafka.offsets import EARLIEST, Place
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.subscriptions.known_positions import CommittedPosition
from support.binary import reachable
from support.memory_cluster import MemoryCluster, MemoryNode

NAME = "public/default/orders"
NOW = {"scalableTopicRetentionSeconds": 0}  # what all have read may go at once


@dataclass(frozen=True)
class KeptTopic:
    """The topic's node, and its segment in Kafka."""

    node: MemoryNode
    kafka: str

    @property
    def cluster(self) -> MemoryCluster:
        return self.node.cluster

    @property
    def topics(self) -> TopicOperations:
        return self.node.operations.topics

    @property
    def billing(self) -> Subscription:
        return self.topics.subscriptions.known(NAME, "billing")

    @property
    def groups(self) -> dict[str, dict[Place, int | CommittedPosition]]:
        """What consumer groups have committed."""
        return self.cluster.positions.groups

    @property
    def begins(self) -> dict[Place, int]:
        """Where partitions begin whose first messages were deleted."""
        return self.cluster.positions.begins

    def group(self, subscription: str = "billing") -> str:
        """A subscription's Kafka group."""
        known = self.topics.subscriptions.known(NAME, subscription)
        return self.topics.access.group_id(NAME, subscription, known)

    def drained(self) -> tuple[int, ...]:
        return self.billing.drained

    async def made(
        self, kind: SubscriptionKind = SubscriptionKind.STREAM, start: int = EARLIEST
    ) -> str:
        """The Kafka group of a new subscription."""
        await self.topics.subscriptions.create(NAME, "billing", kind, start)
        return self.group()

    async def look(self) -> None:
        """The node looks at what is kept of the topic."""
        await self.topics.surveys.look(NAME)


@asynccontextmanager
async def kept_topic(**settings: object) -> AsyncIterator[KeptTopic]:
    """A node that has a topic of one segment with 10 records in each of 4 buckets."""
    async with reachable(1, **{"scalableTopicAutoScaleEnabled": False, **settings}) as cluster:
        (node,) = cluster.nodes
        await node.operations.topics.create(NAME, 1, {})
        (kafka,) = cluster.segments.ends
        cluster.segments.ends[kafka] = [10, 10, 10, 10]
        yield KeptTopic(node, kafka)
