"""Lists of topics through a proxy: unchanged, of any length, and within the limits of memory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from anabranch.broker.proxy.clients.server import ProxyClient
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from support.listing_node import ask, client_of, held, listed, watch
from support.memory_cluster import until


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


async def test_a_list_that_finds_no_memory_is_refused_by_name_and_the_connection_goes_on() -> None:
    async with (
        listed(maxTopicListInFlightHeapMemSizeMB=1) as (proxy, _),
        client_of(proxy) as client,
    ):
        ask(client, 50_000, 1)  # more than all that there is
        refused = await client.told()
        assert (refused.type, refused.error.request_id) == (BaseCommand.ERROR, 1)
        assert refused.error.error == pb.ServerError.TooManyRequests
        assert "maxTopicListInFlightHeapMemSizeMB" in refused.error.message
        ask(client, 100, 2)
        assert len((await client.told()).getTopicsOfNamespaceResponse.topics) == 100
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
