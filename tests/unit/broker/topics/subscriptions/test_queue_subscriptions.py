"""Queue subscriptions of a node: their share groups begin at the first message, in every case."""

from __future__ import annotations

import pytest

from anabranch.broker.errors import KafkaFailedError, UnavailableError
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.kept_topic import NAME, kept_topic

QUEUE = pb.ScalableConsumerType.QUEUE


async def test_a_group_that_was_not_set_up_when_it_was_created_is_before_anybody_reads() -> None:
    async with kept_topic() as kept:
        segments = kept.cluster.segments
        segments.failure = KafkaUnreachableError("Kafka did not answer")
        create = kept.topics.subscriptions.create
        with pytest.raises(UnavailableError, match="did not answer"):
            await create(NAME, "billing", SubscriptionKind.QUEUE)
        async with client_of(kept.node, "a") as client:
            refused = await client.refused(kind=QUEUE)
            assert refused.code == pb.ServerError.ServiceNotReady
            segments.failure = None
            await client.subscribe(kind=QUEUE)
            assert segments.share_groups == {client.assigned[0].group_id}


async def test_what_kafka_refuses_for_good_is_said_in_a_way_that_clients_do_not_repeat() -> None:
    async with kept_topic() as kept:
        kept.cluster.segments.failure = KafkaRefusedError("no share groups here")
        with pytest.raises(KafkaFailedError, match="no share groups here"):
            await kept.topics.subscriptions.create(NAME, "billing", SubscriptionKind.QUEUE)
        async with client_of(kept.node, "a") as client:
            refused = await client.refused(kind=QUEUE)
            assert refused.code == pb.ServerError.NotAllowedError
            assert "no share groups here" in refused.reason


async def test_a_group_is_set_up_once() -> None:
    async with kept_topic() as kept:
        create = kept.topics.subscriptions.create
        for _ in range(3):
            await create(NAME, "billing", SubscriptionKind.QUEUE)
        assert kept.cluster.segments.calls.count("start_share_groups") == 1
