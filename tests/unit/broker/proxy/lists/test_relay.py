"""Lists of topics through a proxy: unchanged, of any length, and within the limits of memory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.broker.proxy.clients import sessions
from anabranch.broker.proxy.clients.server import ProxyClient
from anabranch.broker.proxy.lists.shared import ListHead, list_head, message_of
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.memory.shared import frame_head
from support.listing_node import ask, client_of, deaf, held, listed, watch
from support.memory_cluster import until
from support.secured import tokens_alone
from support.tokens import token
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


async def test_what_a_link_carries_goes_on_by_another_as_soon_as_it_is_to_end() -> None:
    """Its bytes may be long on their way out, and the other has its place by then."""

    async with listed() as (proxy, node), client_of(proxy) as client:
        node.waits.clear()
        ask(client, 3)
        await until(lambda: node.asked == 1)
        node.peers[-1].hold("the test")
        (peer,) = proxy.proxy.wire.peers
        assert isinstance(peer, ProxyClient)
        assert peer.session is not None
        home = peer.session._links.home
        assert home is not None
        home.send_frame(bytes(64 << 20))
        home.close("the test says so")
        watch(client, 2)
        await until(lambda: node.asked == 3)  # the watch, and the list once more
        assert not home.closed.done()
        node.waits.set()
        assert {each.type for each in [await client.told() for _ in range(2)]} == {
            BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        }


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


async def test_a_watch_of_scalable_topics_begins_anew_at_another_node() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        watch(client, 7, 5)
        await client.told()
        node.peers[-1].abort("the node has died")
        told = (await client.told()).watchScalableTopicsUpdate
        assert told.watch_id == 5
        assert list(told.snapshot.topics) == node.names(7)


async def test_the_client_of_a_topic_list_s_watch_watches_again_itself() -> None:
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
        assert not proxy.proxy.shared.counts.lost_links
        home.go_on("a node that is busy")
        for _ in range(300):
            assert (await client.told()).type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE
        assert not proxy.proxy.shared.counts.lost_links


# --- a list that several clients of a proxy are told: read once, in memory once, and never stale


# Two lists of so many names have no room side by side in so much memory.
LONG = 150_000
SMALL = {"maxTopicListInFlightHeapMemSizeMB": 12, "maxTopicListInFlightDirectMemSizeMB": 12}
WAYS = pytest.mark.parametrize("way", ["request", "watch"])


def want(client: Raw, way: str, count: int, number: int = 1, known: str = "") -> None:
    """Asks for a list, or for a watch that begins with it."""
    asked: pb.CommandWatchScalableTopics | pb.CommandGetTopicsOfNamespace
    if way == "watch":
        asked = pb.CommandWatchScalableTopics(watch_id=number, namespace=f"public/{count}")
        asked.current_hash = known
    else:
        asked = pb.CommandGetTopicsOfNamespace(request_id=number, namespace=f"public/{count}")
        asked.topics_hash = known
    client.send(commands.envelope(asked))


async def told(client: Raw) -> tuple[int, str, list[str] | None]:
    """The number it was asked by, its hash, and its names, or None where they are known."""
    answer = await client.told()
    if answer.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
        first = answer.watchScalableTopicsUpdate
        names = list(first.snapshot.topics) if first.HasField("snapshot") else None
        return first.watch_id, first.topics_hash, names
    listed = answer.getTopicsOfNamespaceResponse
    return listed.request_id, listed.topics_hash, list(listed.topics) if listed.changed else None


@WAYS
async def test_a_list_that_many_are_told_takes_the_memory_of_one(way: str) -> None:
    async with listed(**SMALL) as (proxy, node):
        async with AsyncExitStack() as stack:
            for number, each in enumerate(await deaf(stack, proxy, 6), 1):
                want(each, way, LONG, number)
            await until(lambda: min(held(proxy)) > 6 << 20 and node.asked == 6)
            most, told_before = held(proxy), node.told
            async with client_of(proxy) as eager:
                for number in (77, 78):
                    want(eager, way, LONG, number)
                    assert await told(eager) == (number, "abc", node.names(LONG))
                assert node.told == told_before  # the node was asked whether it is still that list
                want(eager, way, LONG, 79, known="abc")
                assert await told(eager) == (79, "abc", None)
            # Those who had asked before held a little each, until they knew whose list it is.
            assert all(now <= then for now, then in zip(held(proxy), most, strict=True))
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)


async def test_a_list_on_its_way_is_told_to_nobody_who_may_not_see_it(tmp_path: Path) -> None:
    """Neither its names nor, by a hash that is guessed, that it is the one."""

    (tmp_path / "proxy.token").write_text(token("proxy"))

    settings = tokens_alone(
        tmp_path,
        brokerClientAuthenticationPlugin="token",
        brokerClientAuthenticationParameters=str(tmp_path / "proxy.token"),
    )
    async with listed(**settings) as (proxy, node):
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
                    refused = await stranger.told()
                    assert refused.type == BaseCommand.ERROR
                    assert refused.error.error == pb.ServerError.TopicNotFound
                ask(reader, 150_000, number)
                assert len((await reader.told()).getTopicsOfNamespaceResponse.topics) == 150_000
            assert node.told == told_before, "who may see it is told the one that is there"
        await until(lambda: held(proxy) == (0, 0))


@WAYS
async def test_who_asks_after_a_list_has_changed_is_told_the_new_one(way: str) -> None:
    async with listed() as (proxy, node):
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            want(lazy, way, LONG)
            await until(lambda: min(held(proxy)) > 6 << 20)
            node.hash = "def"
            async with client_of(proxy) as eager:
                for number in (1, 2):
                    want(eager, way, LONG, number)
                    assert await told(eager) == (number, "def", node.names(LONG))
        await until(lambda: held(proxy) == (0, 0))


async def test_another_list_waits_for_memory_at_the_proxy_and_not_at_the_node() -> None:
    async with listed(**SMALL) as (proxy, node):
        async with AsyncExitStack() as stack:
            (lazy,) = await deaf(stack, proxy, 1)
            ask(lazy, LONG)
            await until(lambda: min(held(proxy)) > 6 << 20)
            async with client_of(proxy) as eager, client_of(proxy) as other:
                ask(eager, 149_999)
                ask(other, 149_999)
                await until(lambda: node.asked == 3)
                # The node is rid of both, while their clients still wait.
                await until(lambda: all(peer.is_drained for peer in node.peers))
                lazy.writer.transport.abort()
                for each in (eager, other):
                    assert len((await each.told()).getTopicsOfNamespaceResponse.topics) == 149_999
                assert node.asked <= 5  # again by the one who was to read it
        await until(lambda: held(proxy) == (0, 0))


@WAYS
async def test_who_goes_while_he_reads_a_list_for_others_takes_it_from_nobody(way: str) -> None:
    async with listed() as (proxy, node):
        for turns in (0, 3, 10, 100):  # of the loop, in which his list may be anywhere
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
                for each in clients:
                    want(each, way, 50_000)
                for _ in range(turns):
                    await asyncio.sleep(0)
                clients[0].writer.transport.abort()
                for each in clients[1:]:
                    assert await told(each) == (1, "abc", node.names(50_000))
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)


async def test_those_who_wait_for_one_list_are_refused_together_when_their_time_is_over() -> None:
    async with listed(
        maxTopicListInFlightHeapMemSizeMB=12,
        maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=500,
    ) as (proxy, _):
        limiter = proxy.proxy.shared.limiter
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
            async with limiter.held(11 << 20, LimitType.HEAP_MEMORY):
                for each in clients:
                    ask(each, 100_000)
                for each in clients:
                    refused = await each.told()
                    assert refused.error.error == pb.ServerError.TooManyRequests
                    assert "HeapMemSizePermitsAcquireTimeoutMillis" in refused.error.message
            for each in clients:
                ask(each, 100_000, 2)
            for each in clients:
                told = (await each.told()).getTopicsOfNamespaceResponse
                assert (told.request_id, len(told.topics)) == (2, 100_000)
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)


async def test_a_late_answer_is_not_the_next_request_s(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listed() as (proxy, node):
        async with client_of(proxy) as client:
            ask(client, 7, 1)
            await client.told()
            monkeypatch.setattr(sessions, "_LIST_S_MAX", 0.2)
            node.waits.clear()
            ask(client, 5, 2)
            refused = await client.told()
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
                told = (await client.told()).getTopicsOfNamespaceResponse
                found[told.request_id] = len(told.topics)
            assert found == {2: 5, 3: 3}
        await until(lambda: held(proxy) == (0, 0))


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
