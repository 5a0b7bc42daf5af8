"""Lists of topics through a proxy: unchanged, of any length, and within the limits of memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from anabranch.broker.proxy import sessions
from anabranch.broker.proxy.shared_lists import ListHead, Told, list_head, message_of
from anabranch.broker.settings.proxy import load_proxy_settings
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX, encode_frame
from anabranch.wire.limiter import LimitType
from anabranch.wire.server import Peer, Routes
from anabranch.wire.shared import frame_head
from support import steady
from support.memory_cluster import until
from support.proxied import HOST, RunningProxy, running_proxy
from support.wire import Raw, raw, serving

_LIMITS = ConnectionLimits(unsent_bytes_max=4 * LIST_FRAME_BYTES_MAX, unread_s_max=3_600)


class ListingNode:
    """Answers with lists of as many names as the namespace says, and pushes changes on demand."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.asked = 0
        self.hash = "abc"
        self.waits = asyncio.Event()  # not set: nothing is answered
        self.waits.set()

    def names(self, count: int) -> list[str]:
        return [f"topic://public/default/a-topic-with-number-{n:06}" for n in range(count)]

    def open_session(self, peer: Peer) -> Routes:
        self.peers.append(peer)

        async def topics(command: BaseCommand) -> None:
            self.asked += 1
            asked = command.getTopicsOfNamespace
            if asked.namespace == "public/none":
                peer.refuse(command, pb.ServerError.TopicNotFound, "no such namespace")
                return
            await self.waits.wait()
            count = int(asked.namespace.split("/")[1])
            told = pb.CommandGetTopicsOfNamespaceResponse(
                request_id=asked.request_id, topics_hash=self.hash
            )
            told.changed = asked.topics_hash != self.hash
            self.send_names(peer, told, self.names(count) if told.changed else [])

        async def watch(command: BaseCommand) -> None:
            self.asked += 1
            asked = command.watchScalableTopics
            snapshot = pb.ScalableTopicsSnapshot(topics=self.names(int(asked.namespace[7:])))
            self.send(
                peer,
                pb.CommandWatchScalableTopicsUpdate(watch_id=asked.watch_id, snapshot=snapshot),
            )

        async def watch_list(command: BaseCommand) -> None:
            asked = command.watchTopicList
            told = pb.CommandWatchTopicListSuccess(
                request_id=asked.request_id, watcher_id=asked.watcher_id, topics_hash=self.hash
            )
            self.send_names(peer, told, self.names(int(asked.namespace.split("/")[1])))

        async def lookup(command: BaseCommand) -> None:
            peer.send(
                pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl="pulsar://node:6650",
                    response=pb.CommandLookupTopicResponse.Connect,
                )
            )

        return {
            BaseCommand.GET_TOPICS_OF_NAMESPACE: topics,
            BaseCommand.WATCH_SCALABLE_TOPICS: watch,
            BaseCommand.WATCH_TOPIC_LIST: watch_list,
            BaseCommand.LOOKUP: lookup,
        }

    def send_names(self, peer: Peer, answer: Told, names: list[str]) -> None:
        """The hash before the names, as nodes do."""
        is_watch = isinstance(answer, pb.CommandWatchTopicListSuccess)
        told = (
            pb.CommandWatchTopicListSuccess(topic=names)
            if is_watch
            else pb.CommandGetTopicsOfNamespaceResponse(topics=names)
        )
        payload = told.SerializePartialToString()
        peer.send_frame(frame_head(answer, len(payload), LIST_FRAME_BYTES_MAX), payload)

    def send(self, peer: Peer, message: object) -> None:
        data = commands.envelope(message).SerializeToString()  # type: ignore[arg-type]
        peer.send_frame(encode_frame(data, LIST_FRAME_BYTES_MAX))


@asynccontextmanager
async def listed(**changes: object) -> AsyncIterator[tuple[RunningProxy, ListingNode]]:
    node = ListingNode()
    async with serving(node.open_session, _LIMITS) as server:
        settings = load_proxy_settings(
            None,
            {},
            {
                "brokerServiceURL": f"pulsar://{HOST}:{server.port}",
                "advertisedAddress": HOST,
                "bindAddress": HOST,
                **changes,
            },
        )
        async with running_proxy(settings) as proxy:
            yield proxy, node


Test = Callable[[RunningProxy, ListingNode], Awaitable[None]]


def run(test: Test, **changes: object) -> None:
    async def body() -> None:
        async with listed(**changes) as (proxy, node):
            await test(proxy, node)

    steady.run(body())


@asynccontextmanager
async def client_of(proxy: RunningProxy) -> AsyncIterator[Raw]:
    async with raw(proxy.settings.service_port, LIST_FRAME_BYTES_MAX) as client:
        await client.handshake()
        yield client


def ask(client: Raw, count: int | str, request_id: int = 1) -> None:
    asked = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=f"public/{count}")
    client.send(commands.envelope(asked))


def watch(client: Raw, count: int, watch_id: int = 1) -> None:
    asked = pb.CommandWatchScalableTopics(watch_id=watch_id, namespace=f"public/{count}")
    client.send(commands.envelope(asked))


def held(proxy: RunningProxy) -> tuple[int, int]:
    limiter = proxy.proxy.shared.limiter
    heap, direct = (limiter.side(each).acquired for each in LimitType)
    return heap, direct


async def answer(client: Raw) -> BaseCommand:
    found = await client.answer()
    assert found is not None
    return found


@pytest.mark.parametrize("count", [0, 1, 1_000, 200_000])
def test_a_list_of_any_length_comes_unchanged(count: int) -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            ask(client, count, 77)
            told = (await answer(client)).getTopicsOfNamespaceResponse
            assert (told.request_id, told.topics_hash) == (77, "abc")
            assert list(told.topics) == node.names(count)
            await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_lists_and_other_answers_share_a_connection() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            for number in range(0, 60, 3):
                ask(client, 500, number)
                asked = pb.CommandLookupTopic(topic="topic://a/b/c", request_id=number + 1)
                client.send(commands.envelope(asked))
                ask(client, "none", number + 2)
            found: set[int] = set()
            while len(found) < 60:
                said = await answer(client)
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

    run(test)


def test_changes_of_a_watched_list_keep_their_order() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            watch(client, 50_000)
            first = (await answer(client)).watchScalableTopicsUpdate
            assert list(first.snapshot.topics) == node.names(50_000)
            for number in range(200):
                added = [f"{number}"] * (1 + 2_000 * (number % 3 == 0))
                diff = pb.ScalableTopicsDiff(added=added)
                node.send(
                    node.peers[-1], pb.CommandWatchScalableTopicsUpdate(watch_id=1, diff=diff)
                )
            for number in range(200):
                told = (await answer(client)).watchScalableTopicsUpdate
                assert told.diff.added[0] == str(number)
            await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_a_list_that_finds_no_memory_is_refused_by_name_and_the_connection_goes_on() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            ask(client, 50_000, 1)  # more than all that there is
            refused = await answer(client)
            assert refused.type == BaseCommand.ERROR
            assert refused.error.request_id == 1
            assert refused.error.error == pb.ServerError.TooManyRequests
            assert "maxTopicListInFlightHeapMemSizeMB" in refused.error.message
            ask(client, 100, 2)
            assert len((await answer(client)).getTopicsOfNamespaceResponse.topics) == 100
            await until(lambda: held(proxy) == (0, 0))

    run(test, maxTopicListInFlightHeapMemSizeMB=1)


def test_a_client_that_does_not_read_holds_what_is_its_own_and_for_a_time() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            lazy = [await stack.enter_async_context(client_of(proxy)) for _ in range(6)]
            for each in lazy:
                each.writer.transport.pause_reading()  # type: ignore[attr-defined]
                ask(each, 150_000)
            await until(lambda: node.asked == 6)
            most = 0
            limiter = proxy.proxy.shared.limiter
            async with client_of(proxy) as eager:
                for number in range(20):
                    ask(eager, 1_000, number)
                    told = (await answer(eager)).getTopicsOfNamespaceResponse
                    assert len(told.topics) == 1_000
                    most = max(most, *held(proxy))
            assert most <= limiter.side(LimitType.HEAP_MEMORY).limits.permits_max
        await until(lambda: held(proxy) == (0, 0))

    run(test, maxTopicListInFlightHeapMemSizeMB=64, maxTopicListInFlightDirectMemSizeMB=64)


def test_memory_for_lists_comes_back_whenever_clients_and_nodes_go() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        for delay_s in (0.0, 0.001, 0.005, 0.02, 0.1):
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(5)]
                for each in clients:
                    ask(each, 20_000)
                    watch(each, 20_000)
                await asyncio.sleep(delay_s)
                for peer in node.peers:
                    peer.abort("the node has died")
                await asyncio.sleep(delay_s)
        await until(lambda: held(proxy) == (0, 0))

    run(test)


def test_a_watch_of_scalable_topics_begins_anew_at_another_node() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            watch(client, 7, 5)
            await answer(client)
            node.peers[-1].abort("the node has died")
            told = (await answer(client)).watchScalableTopicsUpdate
            assert told.watch_id == 5
            assert list(told.snapshot.topics) == node.names(7)

    run(test)


def test_the_client_of_a_topic_list_s_watch_watches_again_itself() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with client_of(proxy) as client:
            asked = pb.CommandWatchTopicList(
                request_id=1, watcher_id=2, namespace="public/3", topics_pattern=".*"
            )
            client.send(commands.envelope(asked))
            told = (await answer(client)).watchTopicListSuccess
            assert (told.watcher_id, list(told.topic)) == (2, node.names(3))
            node.peers[-1].abort("the node has died")
            assert await client.answer() is None  # the end: it has the hash, and comes again

    run(test)


async def deaf(stack: AsyncExitStack, proxy: RunningProxy, count: int) -> list[Raw]:
    """Clients that read nothing."""
    found = [await stack.enter_async_context(client_of(proxy)) for _ in range(count)]
    for each in found:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return found


def test_a_list_that_many_are_told_takes_the_memory_of_one() -> None:
    async def test(proxy: RunningProxy, node: ListingNode) -> None:
        async with AsyncExitStack() as stack:
            lazy = await deaf(stack, proxy, 6)
            for number, each in enumerate(lazy):
                ask(each, 150_000, number)
            await until(lambda: min(held(proxy)) > 6 << 20)
            most = held(proxy)
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
            assert held(proxy) == most
        await until(lambda: held(proxy) == (0, 0))
        assert not len(proxy.proxy.shared.lists)

    # Two of these lists have no room side by side.
    run(test, maxTopicListInFlightHeapMemSizeMB=12, maxTopicListInFlightDirectMemSizeMB=12)


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
