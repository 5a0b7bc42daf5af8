"""Lists of topics through a proxy: unchanged, of any length, and within the limits of memory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.proxy import lists
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.memory.limiter import LimitType
from support.listing_node import ask, before_another, client_of, deaf, held, listed, watch
from support.memory_cluster import until
from support.tokens import secret_file, token
from support.wire import Raw


async def test_a_list_of_any_length_comes_unchanged() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        for count in (0, 1, 1_000, 200_000):
            ask(client, count, 77)
            told = (await client.told()).getTopicsOfNamespaceResponse
            assert (told.request_id, told.topics_hash) == (77, "abc")
            assert list(told.topics) == node.names(count)
            await until(lambda: held(proxy) == (0, 0))


async def test_lists_and_other_answers_share_a_connection() -> None:
    async with listed() as (proxy, _), client_of(proxy) as client:
        for number in range(0, 60, 3):
            ask(client, 500, number)
            asked = pb.CommandLookupTopic(topic="topic://a/b/c", request_id=number + 1)
            client.send(commands.envelope(asked))
            ask(client, "none", number + 2)
        found: set[int] = set()
        while len(found) < 60:
            said = await client.told()
            number = commands.request_id_of(said)
            found.add(number)
            kind = (
                BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                BaseCommand.LOOKUP_RESPONSE,
                BaseCommand.ERROR,
            )[number % 3]
            assert said.type == kind
        assert found == set(range(60))
        await until(lambda: held(proxy) == (0, 0))


async def test_changes_of_a_watched_list_keep_their_order() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        watch(client, 50_000)
        first = (await client.told()).watchScalableTopicsUpdate
        assert list(first.snapshot.topics) == node.names(50_000)
        for number in range(200):
            diff = pb.ScalableTopicsDiff(added=[f"{number}"] * (1 + 2_000 * (number % 3 == 0)))
            node.send(node.peers[-1], pb.CommandWatchScalableTopicsUpdate(watch_id=1, diff=diff))
        for number in range(200):
            assert (await client.told()).watchScalableTopicsUpdate.diff.added[0] == str(number)
        await until(lambda: held(proxy) == (0, 0))


async def test_memory_for_lists_comes_back_whenever_clients_and_nodes_go() -> None:
    async with listed() as (proxy, node):
        for turns in (0, 3, 10, 30, 100):  # of the loop, in which the lists may be anywhere
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(5)]
                for each in clients:
                    ask(each, 20_000)
                    watch(each, 20_000)
                for _ in range(turns):
                    await asyncio.sleep(0)
                for peer in node.peers:
                    peer.abort("the node has died")
                for _ in range(turns):
                    await asyncio.sleep(0)
        await until(lambda: held(proxy) == (0, 0))


async def test_a_client_whose_node_dies_ends_and_has_its_list_s_hash_to_come_again_with() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        asked = pb.CommandWatchTopicList(
            request_id=1, watcher_id=2, namespace="public/3", topics_pattern=".*"
        )
        client.send(commands.envelope(asked))
        told = (await client.told()).watchTopicListSuccess
        assert (told.watcher_id, list(told.topic)) == (2, node.names(3))
        node.peers[-1].abort("the node has died")
        assert await client.answer() is None  # the end: it has the hash, and comes again


async def test_a_node_that_reads_slowly_is_waited_for_by_who_sends_it_much() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        watch(client, 1)
        await client.told()
        home = node.peers[-1]
        home.hold("a node that is busy")
        for number in range(2, 302):
            asked = pb.CommandWatchScalableTopics(watch_id=number, namespace="public/1")
            asked.property_filters.add(key="k", value="v" * 60_000)
            client.send(commands.envelope(asked))
        (peer,) = proxy.proxy.wire.peers
        await until(lambda: bool(peer._holds))
        assert not proxy.proxy.counts.lost_links
        home.go_on("a node that is busy")
        for _ in range(300):
            assert (await client.told()).type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE
        assert not proxy.proxy.counts.lost_links


# --- the limits of memory (seed 003) --------------------------------------------------------------


# Two lists of so many names have no room side by side in so much memory.
LONG = 150_000
SMALL = {"maxTopicListInFlightHeapMemSizeMB": 12, "maxTopicListInFlightDirectMemSizeMB": 12}


async def test_a_list_over_the_limit_waits_at_the_proxy_and_not_at_the_node() -> None:
    async with listed(**SMALL) as (proxy, node):
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            ask(lazy, LONG)
            await until(lambda: min(held(proxy)) > 6 << 20)
            async with client_of(proxy) as eager, client_of(proxy) as other:
                ask(eager, LONG)
                ask(other, LONG)
                await until(lambda: node.asked == 3)
                # The node is rid of both, while their clients still wait.
                await until(lambda: all(peer.is_drained for peer in node.peers))
                assert max(held(proxy)) <= 12 << 20
                lazy.writer.transport.abort()
                for each in (eager, other):
                    assert len((await each.told()).getTopicsOfNamespaceResponse.topics) == LONG
                assert node.asked <= 5
        await until(lambda: held(proxy) == (0, 0))


@pytest.mark.parametrize("kind", LimitType)
async def test_a_request_that_finds_no_memory_is_refused_in_time_and_the_next_is_served(
    kind: LimitType,
) -> None:
    async with listed(
        maxTopicListInFlightHeapMemSizeMB=12,
        maxTopicListInFlightDirectMemSizeMB=12,
        maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=500,
        maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=500,
    ) as (proxy, _):
        async with client_of(proxy) as client:
            async with proxy.proxy.limiter.held(11 << 20, kind):
                ask(client, 100_000)
                refused = await client.told()
                assert refused.error.error == pb.ServerError.TooManyRequests
                said = f"{kind.value}MemSizePermitsAcquireTimeoutMillis"
                assert said in refused.error.message
            ask(client, 100_000, 2)
            found = (await client.told()).getTopicsOfNamespaceResponse
            assert (found.request_id, len(found.topics)) == (2, 100_000)
        await until(lambda: held(proxy) == (0, 0))
        page = (await proxy.http.get("/metrics")).text
        name = f"pulsar_proxy_topic_list_{kind.value.lower()}_timeout_total"
        assert f'{name}{{cluster="standalone"}} 1.0' in page


async def test_a_full_queue_and_a_list_that_is_larger_than_all_memory_are_refused_at_once() -> None:
    queue = "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize"
    async with listed(maxTopicListInFlightHeapMemSizeMB=1, **{queue: 1}) as (proxy, node):
        async with client_of(proxy) as one, client_of(proxy) as two:
            ask(one, 100_000)
            assert "HeapMemSizeMB" in (await one.told()).error.message
            async with proxy.proxy.limiter.held(1 << 20, LimitType.HEAP_MEMORY):
                ask(one, 7)
                side = proxy.proxy.limiter.side(LimitType.HEAP_MEMORY)
                await until(lambda: side.queue_size == 1)
                ask(two, 7)
                assert queue in (await two.told()).error.message
            assert len((await one.told()).getTopicsOfNamespaceResponse.topics) == 7
            assert node.asked == 2
        await until(lambda: held(proxy) == (0, 0))


async def test_a_watched_list_for_which_there_is_no_memory_ends_with_its_connection() -> None:
    async with listed(
        maxTopicListInFlightHeapMemSizeMB=12,
        maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=200,
    ) as (proxy, _):
        async with client_of(proxy) as client, client_of(proxy) as other:
            async with proxy.proxy.limiter.held(12 << 20, LimitType.HEAP_MEMORY):
                watch(client, 100_000)
                refused = await client.told()
                assert refused.error.error == pb.ServerError.TooManyRequests
                assert refused.error.request_id == commands.NO_REQUEST
                assert await client.answer() is None
            watch(other, 3)
            assert len((await other.told()).watchScalableTopicsUpdate.snapshot.topics) == 3
        await until(lambda: held(proxy) == (0, 0))


async def test_a_client_that_does_not_read_holds_no_more_than_its_one_list() -> None:
    async with listed() as (proxy, node):
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            for number in range(20):
                ask(lazy, LONG, number)
            await until(lambda: min(held(proxy)) > 6 << 20)
            assert node.asked == 1
            assert max(held(proxy)) < 10 << 20
            async with client_of(proxy) as eager:
                ask(eager, LONG)
                assert len((await eager.told()).getTopicsOfNamespaceResponse.topics) == LONG
        await until(lambda: held(proxy) == (0, 0))


async def test_no_client_is_told_what_another_one_may_see(tmp_path: Path) -> None:
    """Also while that one's list is on its way, and by a hash that is guessed."""
    (tmp_path / "proxy.token").write_text(token("proxy"))
    settings = {
        "authenticationEnabled": True,
        "tokenSecretKey": secret_file(tmp_path),
        "brokerClientAuthenticationParameters": str(tmp_path / "proxy.token"),
    }
    async with listed(**settings) as (proxy, node):
        node.strangers.add("stranger")
        async with AsyncExitStack() as stack:

            async def client(role: str) -> Raw:
                return await stack.enter_async_context(client_of(proxy, token(role)))

            deaf_reader, reader, stranger = [
                await client(role) for role in ("reader", "other-reader", "stranger")
            ]
            deaf_reader.writer.transport.pause_reading()  # type: ignore[attr-defined]
            ask(deaf_reader, LONG)
            await until(lambda: min(held(proxy)) > 6 << 20)
            for number in range(3):
                for known in ("", "abc"):
                    asked = pb.CommandGetTopicsOfNamespace(
                        request_id=number, namespace=f"public/{LONG}", topics_hash=known
                    )
                    stranger.send(commands.envelope(asked))
                    refused = await stranger.told()
                    assert refused.type == BaseCommand.ERROR
                    assert refused.error.error == pb.ServerError.TopicNotFound
                ask(reader, 1_000, number)
                assert len((await reader.told()).getTopicsOfNamespaceResponse.topics) == 1_000
            assert {peer.principal.role for peer in node.peers} == {
                *("reader", "other-reader", "stranger")
            }
        await until(lambda: held(proxy) == (0, 0))


async def test_a_node_that_owes_a_list_for_too_long_costs_its_client_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with listed() as (proxy, node):
        async with client_of(proxy) as client:
            ask(client, 7, 1)
            await client.told()
            monkeypatch.setattr(lists, "ANSWER_S_MAX", 0.2)
            node.waits.clear()
            ask(client, 5, 2)
            assert await client.answer() is None
        await until(lambda: held(proxy) == (0, 0))
        node.waits.set()


async def test_clients_that_go_leave_neither_memory_nor_links_nor_tasks() -> None:
    async with listed(**SMALL) as (proxy, node):
        for turns in (0, 3, 10, 30, 100):  # of the loop, in which the lists may be anywhere
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
                for each in clients:
                    ask(each, 100_000)
                    watch(each, 20_000)
                for _ in range(turns):
                    await asyncio.sleep(0)
                for each in clients:
                    each.writer.transport.abort()
        await until(lambda: held(proxy) == (0, 0) and not proxy.proxy.wire.peers)
        await until(lambda: all(not peer.is_open for peer in node.peers))
        names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
        assert not {each for each in names if each.startswith(("ListRelay.", "ClientSession."))}


async def test_two_proxies_one_before_the_other_tell_what_each_client_asked() -> None:
    async with listed() as (proxy, node):
        async with before_another(proxy) as outer, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(outer)) for _ in range(3)]
            for number, client in enumerate(clients, 1):
                watch(client, 20_000, number)
                ask(client, 20_000, 70 + number)
            for number, client in enumerate(clients, 1):
                both = [await client.told() for _ in range(2)]
                watched = next(each for each in both if each.HasField("watchScalableTopicsUpdate"))
                told = watched.watchScalableTopicsUpdate
                assert (told.watch_id, list(told.snapshot.topics)) == (number, node.names(20_000))
                listing = next(each for each in both if each is not watched)
                answered = listing.getTopicsOfNamespaceResponse
                assert (answered.request_id, len(answered.topics)) == (70 + number, 20_000)
        await until(lambda: held(proxy) == (0, 0))
