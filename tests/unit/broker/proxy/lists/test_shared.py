"""A list that several clients of a proxy are told: read once, in memory once, and never stale."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.broker.proxy.clients import sessions
from anabranch.broker.proxy.lists.shared import ListHead, list_head, message_of
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.memory.shared import frame_head
from support.listing_node import ListingNode, answer, ask, client_of, deaf, held, run
from support.memory_cluster import until
from support.proxied import RunningProxy
from support.tokens import secret_file, token
from support.wire import Raw


def test_a_list_that_many_are_told_takes_the_memory_of_one() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            lazy = await deaf(stack, proxy, 6)
            for number, each in enumerate(lazy):
                ask(each, 150_000, number)
            await until(lambda: min(held(proxy)) > 6 << 20)
            most, told_before = held(proxy), node.told
            async with client_of(proxy) as eager:
                for number in (77, 78):
                    ask(eager, 150_000, number)
                    told = (await answer(eager)).getTopicsOfNamespaceResponse
                    assert (told.request_id, told.topics_hash, told.changed) == (
                        number,
                        "abc",
                        True,
                    )
                    assert list(told.topics) == node.names(150_000)
                assert node.told == told_before  # the node was asked whether it is still that list
                known = pb.CommandGetTopicsOfNamespace(
                    request_id=79, namespace="public/150000", topics_hash="abc"
                )
                eager.send(commands.envelope(known))
                told = (await answer(eager)).getTopicsOfNamespaceResponse
                assert (told.request_id, told.changed, len(told.topics)) == (79, False, 0)
                asked = pb.CommandWatchTopicList(
                    request_id=80, watcher_id=5, namespace="public/3", topics_pattern=".*"
                )
                eager.send(commands.envelope(asked))
                watched = (await answer(eager)).watchTopicListSuccess
                assert (watched.request_id, watched.watcher_id) == (80, 5)
                assert list(watched.topic) == node.names(3)
            # Those who had asked before held a little each, until they knew whose list it is.
            assert all(now <= then for now, then in zip(held(proxy), most, strict=True))
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    # Two of these lists have no room side by side.
    run(test, maxTopicListInFlightHeapMemSizeMB=12, maxTopicListInFlightDirectMemSizeMB=12)


def test_a_list_that_is_on_its_way_is_told_to_nobody_whom_the_node_does_not_let_see_it(
    tmp_path: Path,
) -> None:
    """Neither its names nor, by a hash that is guessed, that it is the one."""

    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        node.strangers.add("stranger")
        async with AsyncExitStack() as stack:

            async def client(role: str) -> Raw:
                return await stack.enter_async_context(client_of(proxy, token(role)))

            deaf_reader, reader, stranger = [
                await client(role) for role in ("reader", "other-reader", "stranger")
            ]
            deaf_reader.writer.transport.pause_reading()  # type: ignore[attr-defined]
            ask(deaf_reader, 150_000)
            await until(lambda: min(held(proxy)) > 6 << 20)
            told_before = node.told
            for number in range(3):
                for known in ("", "abc"):
                    asked = pb.CommandGetTopicsOfNamespace(
                        request_id=number, namespace="public/150000", topics_hash=known
                    )
                    stranger.send(commands.envelope(asked))
                    refused = await answer(stranger)
                    assert refused.type == BaseCommand.ERROR
                    assert refused.error.error == pb.ServerError.TopicNotFound
                ask(reader, 150_000, number)
                found = (await answer(reader)).getTopicsOfNamespaceResponse
                assert len(found.topics) == 150_000
            assert node.told == told_before, "who may see it is told the one that is there"
        await until(lambda: held(proxy) == (0, 0))

    (tmp_path / "proxy.token").write_text(token("proxy"))
    run(
        test,
        authenticationEnabled=True,
        authenticationProviders="token",
        tokenSecretKey=secret_file(tmp_path),
        brokerClientAuthenticationPlugin="token",
        brokerClientAuthenticationParameters=str(tmp_path / "proxy.token"),
    )


def test_who_asks_after_a_list_has_changed_is_told_the_new_one() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            lazy = await deaf(stack, proxy, 2)
            ask(lazy[0], 150_000)
            await until(lambda: min(held(proxy)) > 6 << 20)
            node.hash = "def"
            async with client_of(proxy) as eager:
                for number in (1, 2):
                    ask(eager, 150_000, number)
                    told = (await answer(eager)).getTopicsOfNamespaceResponse
                    assert (told.request_id, told.topics_hash) == (number, "def")
                    assert len(told.topics) == 150_000
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_another_list_waits_for_memory_at_the_proxy_and_not_at_the_node() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            ask(lazy, 150_000)
            await until(lambda: min(held(proxy)) > 6 << 20)
            async with client_of(proxy) as eager, client_of(proxy) as other:
                ask(eager, 149_999)
                ask(other, 149_999)
                await until(lambda: node.asked == 3)
                # The node is rid of both, while their clients still wait.
                await until(lambda: all(peer.is_drained for peer in node.peers))
                lazy.writer.transport.abort()
                for each in (eager, other):
                    told = (await answer(each)).getTopicsOfNamespaceResponse
                    assert len(told.topics) == 149_999
                assert node.asked <= 5  # again by the one who was to read it
        await until(lambda: held(proxy) == (0, 0))

    run(test, maxTopicListInFlightHeapMemSizeMB=12, maxTopicListInFlightDirectMemSizeMB=12)


def test_who_goes_while_he_reads_a_list_for_others_takes_it_from_nobody() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        for delay_s in (0.0, 0.001, 0.003, 0.01, 0.03):
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
                for each in clients:
                    ask(each, 100_000)
                await asyncio.sleep(delay_s)
                clients[0].writer.transport.abort()
                for each in clients[1:]:
                    told = (await answer(each)).getTopicsOfNamespaceResponse
                    assert len(told.topics) == 100_000
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    run(test)


def test_those_who_wait_for_one_list_are_refused_together_when_their_time_is_over() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        limiter = proxy.proxy.shared.limiter
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
            async with limiter.held(11 << 20, LimitType.HEAP_MEMORY):
                for each in clients:
                    ask(each, 100_000)
                for each in clients:
                    refused = await answer(each)
                    assert refused.error.error == pb.ServerError.TooManyRequests
                    assert "HeapMemSizePermitsAcquireTimeoutMillis" in refused.error.message
            for each in clients:
                ask(each, 100_000, 2)
            for each in clients:
                told = (await answer(each)).getTopicsOfNamespaceResponse
                assert (told.request_id, len(told.topics)) == (2, 100_000)
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    run(
        test,
        maxTopicListInFlightHeapMemSizeMB=12,
        maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=500,
    )


def test_a_late_answer_is_not_taken_for_that_of_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            ask(client, 7, 1)
            await answer(client)
            monkeypatch.setattr(sessions, "_LIST_S_MAX", 0.2)
            node.waits.clear()
            ask(client, 5, 2)
            refused = await answer(client)
            assert (refused.error.request_id, refused.error.error) == (
                2,
                pb.ServerError.ServiceNotReady,
            )
            monkeypatch.setattr(sessions, "_LIST_S_MAX", 60.0)
            ask(client, 3, 3)
            await until(lambda: node.asked == 3)
            node.waits.set()
            found = {}
            for _ in range(2):
                told = (await answer(client)).getTopicsOfNamespaceResponse
                found[told.request_id] = len(told.topics)
            assert found == {2: 5, 3: 3}
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_of_a_list_s_beginning_any_part_tells_what_it_is_or_nothing() -> None:
    told = pb.CommandGetTopicsOfNamespaceResponse(request_id=1 << 60, topics_hash="0a1b2c3d")
    names = pb.CommandGetTopicsOfNamespaceResponse(topics=["topic://a/b/c"] * 1_000)
    payload = names.SerializePartialToString()
    whole = frame_head(told, len(payload), LIST_FRAME_BYTES_MAX)[8:] + payload
    kind = BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    found = [list_head(whole[:count], kind) for count in range(512)]
    nothing, some = ListHead(commands.NO_REQUEST, ""), ListHead(1 << 60, "")
    assert list(dict.fromkeys(found)) == [nothing, some, ListHead(1 << 60, "0a1b2c3d")]
    assert len(message_of(whole, kind)) == len(told.SerializeToString()) + len(payload)
    assert list_head(whole[:512], BaseCommand.WATCH_TOPIC_LIST_SUCCESS) == nothing
    for count in range(64):
        list_head(bytes(range(count, 256)), kind)  # no bytes of a stranger make it fail
