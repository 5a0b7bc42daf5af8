"""What lists of topics take of a node's memory, and who waits for it."""

from __future__ import annotations

import pytest

from anabranch.core.names import parse_namespace
from anabranch.core.topic_lists.topic_list import JOURNAL_MAX, TopicList
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.memory.limiter import LimitType
from support.binary import one_node, reachable
from support.list_follower import EMPTY, HOME, follower_of, full, held, make
from support.memory_cluster import MemoryNode, until
from support.wire import is_refused

LIMITS = {
    "maxTopicListInFlightHeapMemSizeMB": 8,
    "maxTopicListInFlightDirectMemSizeMB": 8,
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 2_000,
}
MANY = full(*(f"orders-of-the-customers-in-region-{number:07d}" for number in range(90_000)))


async def many_topics(node: MemoryNode) -> None:
    """As if the log had them: making so many would measure the making."""
    kept = await node.operations.topics.lists.of(parse_namespace(HOME))
    kept.list = TopicList(MANY)


async def test_a_list_larger_than_any_other_frame_reaches_the_client() -> None:
    async with one_node() as node:
        await many_topics(node)
        async with follower_of(node) as client:
            answer = await client.list()
            assert answer.ByteSize() > 5 << 20
            assert list(answer.topics) == MANY
            client.watch_scalable()
            await until(lambda: client.lists.get(("scalable", 1)) == set(MANY))
            assert set((await client.watch()).topic) == set(MANY)
        await until(lambda: held(node) == 0)


async def test_a_list_that_fits_no_frame_is_refused_with_a_remedy() -> None:
    async with one_node() as node:
        await many_topics(node)
        async with follower_of(node, ConnectionLimits(list_bytes_max=1 << 20)) as client:
            with pytest.raises(RefusedError, match="by REST"):
                await client.list()
            assert (await client.list(topics_pattern="none")).topics_hash == EMPTY
        assert held(node) == 0


async def test_without_memory_a_request_is_refused_by_the_setting_that_helps() -> None:
    async with one_node(**LIMITS) as node:
        await make(node, "a")
        limiter = node.operations.topic_list_limiter
        async with follower_of(node) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a"))
            async with limiter.held(8 << 20, LimitType.DIRECT_MEMORY):
                await is_refused(client.list(), pb.ServerError.TooManyRequests, "DirectMemSize")
                with pytest.raises(RefusedError, match="DirectMemSize"):
                    await client.watch()
                client.watch_scalable(2)
                await until(lambda: 2 in client.errors)
                assert client.errors[2].error == pb.ServerError.TooManyRequests
                await make(node, "b")
            # A watch is told once there is memory.
            await until(lambda: client.has("scalable", "a", "b"))
            assert (await client.list()).changed
            assert node.operations.topics.lists.watch_count == 1
        assert held(node) == 0


async def test_a_watch_that_is_closed_while_it_waits_to_begin_anew_is_counted_once() -> None:
    async with reachable(
        **{**LIMITS, "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 200}
    ) as cluster:
        node = cluster.nodes[0]
        await make(node, "a")
        lists, limiter = node.operations.topics.lists, node.operations.topic_list_limiter
        side = limiter.side(LimitType.DIRECT_MEMORY)
        async with follower_of(node) as client:
            client.watch_scalable()
            client.watch_scalable(2, kind="other")
            await until(lambda: client.has("scalable", "a") and client.has("scalable", number=2))
            kept = await lists.of(parse_namespace(HOME))
            async with limiter.held(8 << 20, LimitType.DIRECT_MEMORY):
                for number in range(JOURNAL_MAX + 2):
                    kept.list.note("topic://public/default/flicker", number % 2 == 0)
                kept.wake()
                await until(lambda: side.queue_size == 1)
                client.connection.send(pb.CommandWatchScalableTopicsClose(watch_id=1))
                await until(lambda: lists.watch_count == 1)
                await until(lambda: side.queue_size == 0)
            await client.list()
            assert client.server.gate.account.watches == 1
            assert not client.errors


async def test_a_watch_that_cannot_begin_anew_for_want_of_memory_is_told_so() -> None:
    async with reachable(
        **{**LIMITS, "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": 200}
    ) as cluster:
        node = cluster.nodes[0]
        await make(node, "a")
        lists, limiter = node.operations.topics.lists, node.operations.topic_list_limiter
        async with follower_of(node) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a"))
            async with limiter.held(8 << 20, LimitType.HEAP_MEMORY):
                lists._forget_all()  # as when the view is built anew
                await until(lambda: 1 in client.errors)
            assert client.errors[1].error == pb.ServerError.TooManyRequests
            assert client.server.gate.account.watches == 0
            client.watch_scalable(2)
            await until(lambda: client.has("scalable", "a", number=2))
