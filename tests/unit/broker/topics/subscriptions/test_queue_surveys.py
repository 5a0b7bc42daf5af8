"""What Kafka tells of a queue: what it has drained, and what of it may be deleted."""

from __future__ import annotations

from anabranch.core.subscriptions.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.kept_topic import NAME, NOW, billing, made, run
from support.memory_cluster import MemoryCluster, MemoryNode, until


def test_a_queue_that_nobody_consumes_has_drained_what_kafka_says_is_acknowledged() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node, SubscriptionKind.QUEUE)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        children = [each for each in cluster.segments.ends if each != kafka]
        told = {(each, bucket): (-1, -1) for each in children for bucket in range(2)}
        told |= {(kafka, bucket): (10, -1) for bucket in range(4)} | {(kafka, 2): (3, 1)}
        cluster.positions.queues[group] = told
        await topics.surveys.look(NAME)
        assert billing(topics).drained == ()
        told[kafka, 2] = (3, 0)  # none is left, though its first offset is behind
        await topics.surveys.look(NAME)
        assert billing(topics).drained == (0,)

    run(test)


def test_a_queue_that_is_consumed_has_drained_what_kafka_says_is_settled() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node, SubscriptionKind.QUEUE)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        children = [each for each in cluster.segments.ends if each != kafka]
        told = {(each, bucket): (-1, -1) for each in children for bucket in range(2)}
        told |= {(kafka, bucket): (10, 0) for bucket in range(4)} | {(kafka, 2): (3, 1)}
        cluster.positions.queues[group] = told
        async with client_of(node, "a") as client:
            await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
            await topics.surveys.look(NAME)
            assert billing(topics).drained == (), "one message is locked, or free"
            told[kafka, 2] = (10, 0)
            await topics.surveys.look(NAME)
            assert billing(topics).drained == (0,)
            await until(lambda: 0 not in {s.segment_id for s in client.assigned[-1].segments})

    run(test)


def test_what_a_queue_has_read_is_deleted_only_where_kafka_tells_of_it() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        group = await made(node, SubscriptionKind.QUEUE)
        await node.operations.topics.surveys.look(NAME)
        assert cluster.positions.begins == {}
        (kafka,) = cluster.segments.ends
        told = cluster.positions.queues[group] = {(kafka, bucket): (0, -1) for bucket in range(4)}
        told |= {(kafka, 1): (6, -1), (kafka, 2): (7, 0), (kafka, 3): (2, 5)}
        await node.operations.topics.surveys.look(NAME)
        assert cluster.positions.begins == {(kafka, 1): 6, (kafka, 2): 10, (kafka, 3): 2}
        assert node.operations.topics.surveys.seen[NAME].left == {"billing": 10 + 4 + 0 + 8}
        assert billing(node.operations.topics).positions == ()

    run(test, **NOW)
