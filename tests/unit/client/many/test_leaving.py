"""What a consumer over many topics does with a topic that it is to leave, and with what is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import AssignedSegment, Assignment, Loss
from anabranch.client._many.consumer import TopicsSubscription
from anabranch.client._many.membership import MemberState
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.core.topics.layout import SegmentLayout
from support.filled_plane import consuming
from support.still_watch import layout_of, lone_member, no_producer
from support.waiting import until

TOPIC = "public/default/orders"

_Scene = tuple[sdk.StreamTopicsConsumer, sdk.StreamConsumer, sdk.Batch]


def _who() -> TopicsSubscription:
    nodes = Nodes("pulsar://127.0.0.1:1")
    chosen = sdk.TopicSelection("public/default")
    return TopicsSubscription(nodes, {}, chosen, "billing", "", no_producer, TrafficReporter())


@asynccontextmanager
async def leaving() -> AsyncIterator[_Scene]:
    """It has received three messages of a topic that the list has no more."""
    many = sdk.StreamTopicsConsumer(_who(), sdk.ConsumerSettings())
    async with consuming(9) as (one, plane):
        many._consumers[TOPIC] = one
        one._readable._listener = lambda: many._topic_readable(TOPIC)
        many._members.listed([TOPIC], 0.0)
        many._members.orders(0.0)
        many._members.opened(TOPIC, 0.0)
        plane.read(range(3))
        one._changed()
        batch = await many.receive_many(timeout_s=0)
        many._members.unlisted([TOPIC], many._now())
        many._poke.set()
        many._tasks.spawn(many._drive())
        await until(lambda: not many._poke.is_set())  # it has looked, and waits
        yield many, one, batch
        await many._tasks.cancel()


async def test_a_topic_is_kept_until_all_of_it_is_acknowledged_or_lost() -> None:
    for loss in (None, Loss.LAPSED):
        async with leaving() as (many, one, batch):
            assert many._members.state(TOPIC) is MemberState.DRAINING
            if loss is None:
                many.acknowledge(batch)
            else:
                one._core.give_up(loss)
                one._changed()
            await until(lambda: many._members.state(TOPIC) is not MemberState.DRAINING)


async def test_what_was_lost_with_a_topic_that_was_left_is_told_once() -> None:
    async with leaving() as (many, one, batch):
        one._core.give_up(Loss.CLOSED)
        one._changed()
        await until(lambda: not many._consumers)
        with pytest.raises(sdk.BucketLostError, match=f"{TOPIC} was taken away .* left it"):
            many.acknowledge(batch)
        with pytest.raises(sdk.BucketLostError):
            async with many.while_held(batch):
                pytest.fail("it is not begun any more")
        with pytest.raises(sdk.BucketLostError):
            many.acknowledge_all()
        many.acknowledge_all()


async def test_what_is_lost_of_a_topic_that_a_checkpoint_does_not_name_is_told_too() -> None:
    async def position_of(_topic: str, _segment_id: int, _bucket: int) -> int | None:
        return None

    many = sdk.CheckpointTopicsConsumer(_who(), sdk.ConsumerSettings(), None, position_of)
    member = lone_member("lake")
    member.watch._layout = layout_of(SegmentLayout.initial(1))
    one = many._consumers[TOPIC] = sdk.CheckpointConsumer(member, sdk.ConsumerSettings())
    order = one._core.begin_subscribe(0.0)
    granted = Assignment(1, 1, 1, "g", 1_000.0, (AssignedSegment(0, "t0", (0,)),))
    assert one._core.on_subscribed(order.number, granted, 0.0)
    (holding,) = one._core.holdings.values()
    holding.begin(0)
    holding.deliver(9)
    stored = many.checkpoint()
    assert stored.topics[TOPIC].positions == {0: {0: 9}}
    one._core.give_up(Loss.LAPSED)
    with pytest.raises(sdk.BucketLostError):
        many.saved(sdk.TopicsCheckpoint({}))
