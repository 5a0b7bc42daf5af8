"""Subscriptions that are deleted, or put elsewhere, under their consumers."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from anabranch.broker.errors import ConflictError, DeadlineExceededError, NotFoundError
from anabranch.channel.codec import read_entry
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import SubscriptionChange
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.errors import RefusedError
from support.binary import reachable
from support.binary_consumer import client_of
from support.kept_topic import NAME, kept_topic
from support.memory_cluster import until

_OPERATION_S: Final = 1.0
_KINDS: Final = {
    SubscriptionKind.STREAM: pb.ScalableConsumerType.STREAM,
    SubscriptionKind.QUEUE: pb.ScalableConsumerType.QUEUE,
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("made_again", [False, True])
async def test_a_deleted_subscription_ends_its_consumers_for_good(
    kind: SubscriptionKind, made_again: bool
) -> None:
    async with kept_topic() as kept:
        sessions = kept.topics.subscriptions
        async with client_of(kept.node, "a") as client:
            await client.subscribe(kind=_KINDS[kind])
            begun_at = client.assigned[-1].begun_at
            await sessions.delete(NAME, "billing", force=True)
            await until(lambda: bool(client.closed))
            assert f"subscription billing of topic://{NAME} was deleted" in client.closed[0]
            if made_again:
                await sessions.create(NAME, "billing", kind)
            with pytest.raises(RefusedError, match="was deleted") as refused:
                await client.subscribe(kind=_KINDS[kind], begun_at=begun_at)
            assert refused.value.code == pb.ServerError.SubscriptionNotFound
            assert (kept.node.view.subscription(NAME, "billing") is not None) is made_again
            await client.subscribe(kind=_KINDS[kind])  # as a new consumer
            assert client.assigned[-1].begun_at != begun_at


@pytest.mark.parametrize("kind", _KINDS)
async def test_a_consumed_subscription_is_deleted_by_force_only(kind: SubscriptionKind) -> None:
    async with kept_topic() as kept:
        async with client_of(kept.node, "a") as client:
            await client.subscribe(kind=_KINDS[kind])
            with pytest.raises(ConflictError, match="close a first, or delete it by force"):
                await kept.topics.subscriptions.delete(NAME, "billing")
            assert kept.node.view.subscription(NAME, "billing") is not None
            assert client.closed == []
            await client.leave()
        await kept.topics.subscriptions.delete(NAME, "billing")
        assert kept.node.view.subscription(NAME, "billing") is None


async def test_a_topic_that_is_consumed_is_deleted_by_force_only() -> None:
    async with kept_topic() as kept, client_of(kept.node, "a") as client:
        await client.subscribe()
        with pytest.raises(ConflictError, match="close a first, or delete the topic by force"):
            await kept.topics.delete(NAME)
        assert client.closed == []
        await kept.topics.delete(NAME, force=True)
        assert kept.node.view.topic(NAME) is None


async def test_what_was_drained_before_a_reset_is_not_drained_after_it() -> None:
    async with kept_topic() as kept:
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            begun_at = client.assigned[-1].begun_at
            await kept.topics.split(NAME, 0)
            await kept.topics.subscriptions.reset(NAME, "billing", EARLIEST)
        async with client_of(kept.node, "a") as again:
            await again.subscribe({}, drained={0: [0, 1, 2, 3]}, begun_at=begun_at)
            assert again.assigned[-1].begun_at != begun_at
            assert again.held == {0: [0, 1, 2, 3]}


async def test_a_seek_out_of_time_is_over_before_the_next_change() -> None:
    async with kept_topic(operationTimeoutMillis=round(1_000 * _OPERATION_S)) as kept:
        await kept.made()
        topics, positions, former = kept.topics, kept.cluster.positions, kept.billing
        positions.hold.clear()
        loop = asyncio.get_running_loop()
        out_of_time = loop.time() + 2 * _OPERATION_S
        seeking = asyncio.create_task(topics.subscriptions.reset(NAME, "billing", LATEST))
        await until(lambda: "offsets" in positions.calls)
        deleting = asyncio.create_task(topics.subscriptions.delete(NAME, "billing"))
        await until(lambda: loop.time() > out_of_time)
        assert not deleting.done()
        assert kept.billing == former
        positions.hold.set()
        with pytest.raises(DeadlineExceededError, match="look before you try again"):
            await seeking
        await deleting
        assert kept.node.view.subscription(NAME, "billing") is None


async def test_a_seek_of_what_was_deleted_meanwhile_with_its_topic_changes_nothing() -> None:
    async with kept_topic() as kept:
        await kept.made()
        positions = kept.cluster.positions
        positions.hold.clear()
        seeking = asyncio.create_task(kept.topics.subscriptions.reset(NAME, "billing", LATEST))
        await until(lambda: "offsets" in positions.calls)
        await kept.topics.delete(NAME)
        await kept.topics.create(NAME, 1, {})
        positions.hold.set()
        with pytest.raises(NotFoundError, match="Subscription not found"):
            await seeking
        assert kept.node.view.subscription(NAME, "billing") is None


async def test_a_seek_that_is_behind_a_deletion_and_a_new_beginning_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the simulation, seed 180705730: it was said to be done."""
    async with kept_topic() as kept:
        await kept.made()
        subscriptions, proposals = kept.topics.subscriptions, kept.topics.access.proposals
        propose = proposals.propose

        async def overtaken(record: SubscriptionChange, deadline: float) -> Folded:
            if record.op is not SubscriptionOp.RESET:
                return await propose(record, deadline)
            await subscriptions.change(NAME, "billing", SubscriptionOp.DELETE)
            found = await propose(record, deadline)
            kind = SubscriptionKind.STREAM
            await subscriptions.change(NAME, "billing", SubscriptionOp.CREATE, kind=kind)
            return found

        monkeypatch.setattr(proposals, "propose", overtaken)
        with pytest.raises(ConflictError, match="deleted meanwhile, and made anew"):
            await kept.topics.subscriptions.reset(NAME, "billing", LATEST)


async def test_a_seek_of_what_is_made_anew_while_its_beginning_is_sought_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kept_topic() as kept:
        await kept.made()
        subscriptions = kept.topics.subscriptions
        sought = subscriptions._beginning

        async def overtaken(*asked: Any) -> Any:
            await subscriptions.change(NAME, "billing", SubscriptionOp.DELETE)
            kind = SubscriptionKind.STREAM
            await subscriptions.change(NAME, "billing", SubscriptionOp.CREATE, kind=kind)
            return await sought(*asked)

        monkeypatch.setattr(subscriptions, "_beginning", overtaken)
        with pytest.raises(ConflictError, match="deleted meanwhile, and made anew"):
            await subscriptions.reset(NAME, "billing", LATEST)


async def test_a_queue_stays_while_a_former_controllers_consumers_may_be_there() -> None:
    async with reachable(2) as cluster:
        node = await cluster.create()
        await node.operations.topics.subscriptions.create(NAME, "billing", SubscriptionKind.QUEUE)
        other = next(each for each in cluster.nodes if each is not node)
        await node.operations.unload(controller_of(node.view, NAME)[0], other.id)
        topics = other.operations.topics
        await until(lambda: topics.access.service.may_act(NAME))
        before = topics.subscriptions.known(NAME, "billing")
        with pytest.raises(ConflictError, match="consumers that do not know this node yet"):
            await topics.subscriptions.reset(NAME, "billing", EARLIEST)
        assert topics.subscriptions.known(NAME, "billing") == before
        await topics.subscriptions.create(NAME, "later", SubscriptionKind.QUEUE)
        await topics.subscriptions.reset(NAME, "later", EARLIEST)


async def test_a_consumer_that_leaves_does_not_take_with_it_the_next_one_of_its_number() -> None:
    async with kept_topic() as kept:
        topics = kept.topics
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            async with topics.subscriptions.alone(NAME, "billing"):
                leaving = asyncio.create_task(client.leave())
                await until(lambda: not topics.access.service.consumers)
                await client.subscribe(subscription="audit")
            await leaving
            await client.report()


@pytest.mark.parametrize("kind", _KINDS)
async def test_a_controller_that_lost_its_topic_admits_nobody(kind: SubscriptionKind) -> None:
    async with reachable(2) as cluster:
        node = await cluster.create()
        topics = node.operations.topics
        subscriptions, service = topics.subscriptions, topics.access.service
        (segment,) = cluster.segments.ends
        cluster.segments.ends[segment] = [1, 0, 2, 0]
        await subscriptions.make(NAME, "billing", kind, LATEST)  # and it has not begun yet
        other = next(each for each in cluster.nodes if each is not node)
        async with client_of(node, "a") as client:
            async with subscriptions.alone(NAME, "billing"):  # the request was let in, and waits
                asking = asyncio.create_task(client.refused(kind=_KINDS[kind]))
                await until(lambda: NAME in service._pins)
                await node.operations.unload(controller_of(node.view, NAME)[0], other.id)
                await until(lambda: not service.may_act(NAME))
                told = len(cluster.entries)
                cluster.positions.calls.clear()
            refusal = await asking
        assert refusal.code == pb.ServerError.ServiceNotReady
        assert other.id in refusal.reason
        assert not service.consumers
        records = [read_entry(each.key, each.value) for each in cluster.entries[told:]]
        assert not [each for each in records if isinstance(each, SubscriptionChange)]
        assert "begin_queue" not in cluster.positions.calls
