"""What lists of topics take of a node's memory, and who waits for it."""

from __future__ import annotations

import pytest

from anabranch.broker.binary import list_payloads
from anabranch.broker.binary.list_payloads import Form, Payloads
from anabranch.broker.topics.kept_list import KeptList
from anabranch.core.names import parse_namespace
from anabranch.core.topic_lists.selection import ALL, by_pattern
from anabranch.core.topic_lists.topic_list import JOURNAL_MAX, TopicList
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.memory.shared import SharedPayload
from support.binary import one_node, reachable
from support.limiter import limiter_of
from support.list_follower import EMPTY, HOME, follower_of, full, held, make
from support.memory_cluster import MemoryNode, until
from support.wire import is_refused

# --- memory -----------------------------------------------------------------------------

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


# --- payloads of lists: made once at one state of a list, and kept within bounds ------------------


FIRST = parse_namespace("public/default")
NAME_BYTES = 100


def kept_list(count: int, pattern: str = "") -> KeptList:
    kept = KeptList(FIRST, by_pattern(pattern) if pattern else ALL)
    kept.list = TopicList(
        f"topic://public/default/{number:0{NAME_BYTES}d}" for number in range(count)
    )
    return kept


async def sent(payload: SharedPayload) -> bytes:
    async with payload.used() as data:
        return data


async def test_what_nobody_is_sent_takes_only_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1_000_000
    monkeypatch.setattr(list_payloads, "_IDLE_BYTES_MAX", most)

    payloads = Payloads(limiter_of(1 << 30))
    lists = [kept_list(3_000, f"a{number}") for number in range(5)]  # three fit
    for kept in lists:
        await sent(payloads.names(kept, Form.RESPONSE))
        assert payloads.idle_bytes <= most
    newest = payloads.names(lists[-1], Form.RESPONSE)
    assert await sent(newest) is await sent(newest)
    for number in range(50):  # what has changed is not kept twice
        lists[-1].list.note(f"topic://public/default/{number}", True)
        await sent(payloads.names(lists[-1], Form.RESPONSE))
        assert payloads.idle_bytes <= most
    long = payloads.names(kept_list(20_000), Form.RESPONSE)
    assert await sent(long) is not await sent(long)  # alone it is too much
    assert payloads.idle_bytes <= most


async def test_what_is_being_sent_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_payloads, "_IDLE_BYTES_MAX", 400_000)

    payloads = Payloads(limiter_of(1 << 30))
    one, other = kept_list(3_000, "one"), kept_list(3_000, "other")
    used = payloads.names(one, Form.RESPONSE)
    await sent(used)
    async with used.used() as data:
        await sent(payloads.names(other, Form.RESPONSE))  # takes its place among the idle
        assert await sent(payloads.names(one, Form.RESPONSE)) is data
    assert payloads.idle_bytes <= 400_000
