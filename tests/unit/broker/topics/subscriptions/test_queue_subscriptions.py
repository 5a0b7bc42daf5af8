"""Queue subscriptions of a node: their share groups begin at the first message, in every case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from anabranch.broker.errors import KafkaFailedError, UnavailableError
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.core.subscriptions.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support import steady
from support.binary_consumer import client_of
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, memory_cluster

NAME = "public/default/orders"
QUEUE = pb.ScalableConsumerType.QUEUE


def run(test: Callable[[MemoryCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with memory_cluster(1, **{**PATIENT, "brokerServicePort": 7000}) as cluster:
            await cluster.nodes[0].operations.topics.access.find_controller(NAME)
            await cluster.nodes[0].operations.topics.create(NAME, 1, {})
            await test(cluster)

    steady.run(body())


def test_a_group_that_was_not_set_up_when_it_was_created_is_before_anybody_reads() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node, segments = cluster.nodes[0], cluster.segments
        segments.failure = KafkaUnreachableError("Kafka did not answer")
        create = node.operations.topics.consumers.create
        with pytest.raises(UnavailableError, match="did not answer"):
            await create(NAME, "billing", SubscriptionKind.QUEUE)
        async with client_of(node, "a") as client:
            refused = await client.refused(kind=QUEUE)
            assert refused.code == pb.ServerError.ServiceNotReady
            segments.failure = None
            await client.subscribe(kind=QUEUE)
            assert segments.share_groups == {client.assigned[0].group_id}

    run(test)


def test_creating_it_again_sets_up_a_group_that_was_not() -> None:
    async def test(cluster: MemoryCluster) -> None:
        create = cluster.nodes[0].operations.topics.consumers.create
        cluster.segments.failure = KafkaUnreachableError("Kafka did not answer")
        with pytest.raises(UnavailableError):
            await create(NAME, "billing", SubscriptionKind.QUEUE)
        cluster.segments.failure = None
        await create(NAME, "billing", SubscriptionKind.QUEUE)
        assert len(cluster.segments.share_groups) == 1

    run(test)


def test_what_kafka_refuses_for_good_is_said_in_a_way_that_clients_do_not_repeat() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        cluster.segments.failure = KafkaRefusedError("no share groups here")
        with pytest.raises(KafkaFailedError, match="no share groups here"):
            await node.operations.topics.consumers.create(NAME, "billing", SubscriptionKind.QUEUE)
        async with client_of(node, "a") as client:
            refused = await client.refused(kind=QUEUE)
            assert refused.code == pb.ServerError.NotAllowedError
            assert "no share groups here" in refused.reason

    run(test)


def test_a_group_is_set_up_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        create = cluster.nodes[0].operations.topics.consumers.create
        for _ in range(3):
            await create(NAME, "billing", SubscriptionKind.QUEUE)
        assert cluster.segments.calls.count("start_share_groups") == 1

    run(test)
