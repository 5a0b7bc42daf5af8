"""The limits for strangers on a proxy's binary port, and a node's on the links of a proxy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from google.protobuf.message import Message
from structlog.testing import capture_logs

from anabranch.core.strangers import PortRefusal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.errors import RefusedError
from anabranch.wire.framing import FRAME_BYTES_MAX
from support.binary import subscribe
from support.memory_cluster import WAIT_S, until
from support.proxied import RunningProxy, create_topic, proxied
from support.wire import error_of, raw

NAME = "public/default/orders"
FULL = f"topic://{NAME}"
SPACE = "public/default"
IDLE_S = 0.3

Pushed = list[BaseCommand]


async def look_up(client: ClientConnection) -> None:
    await client.request(pb.CommandLookupTopic(topic=FULL), WAIT_S)


def of_layout(number: int) -> Message:
    return pb.CommandScalableTopicLookup(session_id=number, topic=FULL)


def of_topics(number: int) -> Message:
    return pb.CommandWatchScalableTopics(watch_id=number, namespace=SPACE)


def of_list(number: int) -> Message:
    return pb.CommandWatchTopicList(watcher_id=number, namespace=SPACE, topics_pattern=".*")


def consumer(number: int) -> Message:
    # Of a subscription of its own, so that none waits for what another one has.
    return subscribe(NAME, number, subscription=f"billing-{number}", instance=number + 1)


class Watcher:
    """A client that opens watches of one kind and hears whether they are there."""

    def __init__(self, client: ClientConnection, pushed: Pushed) -> None:
        self.client = client
        self.pushed = pushed

    async def open(self, message: Message) -> int | None:
        """Its refusal; None if it was served."""
        if isinstance(message, pb.CommandWatchTopicList | pb.CommandScalableTopicSubscribe):
            try:
                await self.client.request(message, WAIT_S)
            except RefusedError as error:
                return error.code
            return None
        told = len(self.pushed)
        self.client.send(message)
        await until(lambda: len(self.pushed) > told)
        code = error_of(self.pushed[-1])
        return None if code == -1 else code

    async def close(self, message: Message) -> None:
        """Ends one that `open` has opened."""
        if isinstance(message, pb.CommandScalableTopicLookup):
            self.client.send(pb.CommandScalableTopicClose(session_id=message.session_id))
        elif isinstance(message, pb.CommandWatchScalableTopics):
            self.client.send(pb.CommandWatchScalableTopicsClose(watch_id=message.watch_id))
        elif isinstance(message, pb.CommandWatchTopicList):
            closing = pb.CommandWatchTopicListClose(watcher_id=message.watcher_id)
            await self.client.request(closing, WAIT_S)
        elif isinstance(message, pb.CommandScalableTopicSubscribe):
            leaving = pb.CommandScalableTopicUnsubscribe(consumer_id=message.consumer_id)
            await self.client.request(leaving, WAIT_S)


KINDS: Final[tuple[Callable[[int], Message], ...]] = (of_layout, of_topics, of_list, consumer)


@asynccontextmanager
async def watching(proxy: RunningProxy) -> AsyncIterator[Watcher]:
    pushed: Pushed = []
    async with proxy.client(pushed.append) as client:
        yield Watcher(client, pushed)


def account_of(proxy: RunningProxy) -> tuple[int, int]:
    account = proxy.proxy.wire.gate.account
    return account.watches, account.connections


async def test_one_watch_too_many_is_refused_and_one_closed_makes_room() -> None:
    async with proxied(brokerMaxWatchesPerConnection=2) as (proxy, nodes):
        await create_topic(nodes)
        for kind in KINDS:
            async with watching(proxy) as watcher:
                assert await watcher.open(kind(0)) is None
                assert await watcher.open(kind(1)) is None
                assert account_of(proxy)[0] == 2
                for number in (2, 3):
                    assert await watcher.open(kind(number)) == pb.ServerError.TooManyRequests
                assert account_of(proxy)[0] == 2
                await watcher.close(kind(0))
                await until(lambda: account_of(proxy)[0] == 1)
                assert await watcher.open(kind(2)) is None
                assert account_of(proxy)[0] == 2
            await until(lambda: account_of(proxy) == (0, 0))


async def test_a_watch_that_a_node_refuses_counts_for_nothing() -> None:
    async with proxied(brokerMaxWatchesPerConnection=2) as (proxy, _), watching(proxy) as watcher:
        for number, kind in enumerate(KINDS):
            wrong = kind(number)
            field = "topic" if "topic" in wrong.DESCRIPTOR.fields_by_name else "namespace"
            setattr(wrong, field, "public/nowhere/at/all")
            assert await watcher.open(wrong) is not None
        await until(lambda: account_of(proxy)[0] == 0)


async def test_a_watch_opened_anew_counts_once() -> None:
    async with proxied() as (proxy, nodes):
        await create_topic(nodes)
        async with watching(proxy) as watcher:
            for kind in KINDS:
                for _turn in range(3):
                    assert await watcher.open(kind(1)) is None
            assert account_of(proxy)[0] == 4
        await until(lambda: account_of(proxy) == (0, 0))


async def test_watches_and_consumers_of_a_lost_node_count_as_often_as_they_are_there() -> None:
    async with proxied() as (proxy, nodes):
        await create_topic(nodes)
        async with watching(proxy) as watcher:
            for kind in (of_layout, of_topics, consumer):
                assert await watcher.open(kind(1)) is None
            assert account_of(proxy)[0] == 3
            for each in nodes:
                each.cut_links()
            await until(lambda: account_of(proxy)[0] == 2)  # the consumer has to subscribe again
            assert await watcher.open(consumer(1)) is None
            assert account_of(proxy)[0] == 3
        await until(lambda: account_of(proxy) == (0, 0))


async def test_a_client_that_only_watches_is_not_idle() -> None:
    async with proxied(brokerConnectionMaxIdleSeconds=IDLE_S) as (proxy, nodes):
        await create_topic(nodes)
        async with watching(proxy) as watcher, proxy.client() as idle:
            client = watcher.client
            assert await watcher.open(of_layout(1)) is None
            await asyncio.wait([idle.closed], timeout=WAIT_S)
            assert idle.closed.done()  # one that watches nothing is
            counts = proxy.proxy.wire.gate.counts
            assert counts[PortRefusal.IDLE] == 1
            async with proxy.client() as another:  # as long again
                await asyncio.wait([another.closed], timeout=WAIT_S)
            assert counts[PortRefusal.IDLE] == 2
            assert client.is_open
            await watcher.close(of_layout(1))
            await asyncio.wait([client.closed], timeout=WAIT_S)
            assert counts[PortRefusal.IDLE] == 3


async def test_links_that_a_node_ends_as_idle_are_opened_again_unnoticed() -> None:
    async with proxied(node_changes={"brokerConnectionMaxIdleSeconds": IDLE_S}) as (proxy, nodes):
        await create_topic(nodes)

        def idle() -> int:
            return sum(each.wire.gate.counts[PortRefusal.IDLE] for each in nodes)

        async with watching(proxy) as watcher:
            client = watcher.client
            asked = pb.CommandGetTopicsOfNamespace(
                namespace=SPACE, mode=pb.CommandGetTopicsOfNamespace.ALL
            )
            with capture_logs() as logs:
                for number in range(3):
                    await look_up(client)
                    await client.request(asked, WAIT_S)
                    assert await watcher.open(of_list(number)) is None
                    await watcher.close(of_list(number))
                    assert await watcher.open(consumer(number)) is None
                    await watcher.close(consumer(number))
                    before = idle()
                    await until(lambda: all(not each.wire.peers for each in nodes))
                    assert idle() > before
            assert not watcher.pushed  # and no request was refused
            assert not [each for each in logs if each["event"].startswith("proxy.")]
            assert "wire.refused" not in {each["event"] for each in logs}
            counts = proxy.proxy.shared.counts
            assert (counts.lost_links, counts.refusals) == (0, 0)
            assert proxy.proxy.shared.nodes.answering == len(nodes)


async def test_questions_that_meet_the_end_of_an_idle_link_are_answered() -> None:
    async with proxied() as (proxy, nodes):
        await create_topic(nodes)
        async with watching(proxy) as watcher:
            client = watcher.client
            for number in range(8):
                assert await watcher.open(consumer(number)) is None
                await watcher.close(consumer(number))
                await client.request(pb.CommandGetTopicsOfNamespace(namespace=SPACE), WAIT_S)
                for each in nodes:
                    for peer in list(each.wire.peers):
                        peer.turn_away(PortRefusal.IDLE, "nothing was asked")
                # At once, over links that their nodes have left already.
                await asyncio.gather(
                    look_up(client),
                    watcher.open(of_list(number)),
                    client.request(consumer(number), WAIT_S),
                )
                await watcher.close(consumer(number))
                await watcher.close(of_list(number))
            assert not [each for each in watcher.pushed if each.type == BaseCommand.ERROR]
        await until(lambda: account_of(proxy) == (0, 0))


async def test_a_stranger_s_frame_may_not_be_as_long_as_a_list() -> None:
    async with proxied(count=1) as (proxy, nodes):
        for port in (proxy.settings.service_port, nodes[0].node.settings.broker_service_port):
            assert port
            async with raw(port) as client:
                await client.handshake()
                client.writer.write(struct.pack(">II", FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX - 3))
                told = await client.told()
                assert told.error.error == pb.ServerError.NotAllowedError
                assert "brokerMaxFrameSize" in told.error.message
                assert await client.answer() is None
