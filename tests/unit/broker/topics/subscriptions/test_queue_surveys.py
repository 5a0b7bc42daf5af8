"""What Kafka tells of a queue: what it has drained, and what of it may be deleted."""

from __future__ import annotations

import pytest

from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.kept_topic import NAME, NOW, kept_topic
from support.memory_cluster import until


@pytest.mark.parametrize("is_consumed", [False, True])
async def test_a_queue_has_drained_what_kafka_says_is_settled(is_consumed: bool) -> None:
    async with kept_topic() as kept:
        group = await kept.made(SubscriptionKind.QUEUE)
        await kept.topics.split(NAME, 0)
        children = [each for each in kept.cluster.segments.ends if each != kept.kafka]
        told = {(each, bucket): (-1, -1) for each in children for bucket in range(2)}
        left = 0 if is_consumed else -1
        told |= {(kept.kafka, bucket): (10, left) for bucket in range(4)} | {
            (kept.kafka, 2): (3, 1)
        }
        kept.cluster.positions.queues[group] = told
        async with client_of(kept.node, "a") as client:
            if is_consumed:
                await client.subscribe(kind=pb.ScalableConsumerType.QUEUE)
            await kept.look()
            assert kept.drained() == (), "one message is locked, or free"
            told[kept.kafka, 2] = (3, 0)  # none is left, though its first offset is behind
            await kept.look()
            assert kept.drained() == (0,)
            if is_consumed:
                await until(lambda: 0 not in {s.segment_id for s in client.assigned[-1].segments})


async def test_what_a_queue_has_read_is_deleted_only_where_kafka_tells_of_it() -> None:
    async with kept_topic(**NOW) as kept:
        group = await kept.made(SubscriptionKind.QUEUE)
        await kept.look()
        assert kept.begins == {}
        told = kept.cluster.positions.queues[group] = {
            (kept.kafka, bucket): (0, -1) for bucket in range(4)
        }
        told |= {(kept.kafka, 1): (6, -1), (kept.kafka, 2): (7, 0), (kept.kafka, 3): (2, 5)}
        await kept.look()
        assert kept.begins == {(kept.kafka, 1): 6, (kept.kafka, 2): 10, (kept.kafka, 3): 2}
        assert kept.topics.surveys.seen[NAME].left == {"billing": 10 + 4 + 0 + 8}
        assert kept.billing.positions == ()
