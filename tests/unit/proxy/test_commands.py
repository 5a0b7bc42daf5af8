"""Commands of clients through a proxy: which ones nodes owe answers to, and which are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.core.strangers import AccountLimits, PortRefusal
from anabranch.proxy.link import OWN_IDS
from anabranch.proxy.server import ProxyClient
from anabranch.proxy.session import ClientSession
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.identity import AdmittedPeer, Visitor
from anabranch.wire.server.server import Peer, Routes
from support.binary import subscribe
from support.listing_node import ask, client_of, listed
from support.memory_cluster import until
from support.proxied import RunningProxy, proxy_before
from support.there import there
from support.tokens import secret_file, token
from support.wire import HOST, error_of, raw, serving

OF_A_CONSUMER = (
    BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
    BaseCommand.SCALABLE_CONSUMER_REPORT,
    BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE,
)


def look_up(number: int) -> pb.CommandLookupTopic:
    return pb.CommandLookupTopic(topic="topic://a/b/c", request_id=number)


def look_up_told(number: int) -> pb.CommandLookupTopicResponse:
    told = pb.CommandLookupTopicResponse.Connect
    return pb.CommandLookupTopicResponse(request_id=number, response=told)


def session_of(proxy: RunningProxy) -> ClientSession:
    (peer,) = proxy.proxy.wire.peers
    assert isinstance(peer, ProxyClient)
    return there(peer.session)


async def test_a_watch_of_a_list_that_is_answered_is_owed_no_more() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        for number in range(3):
            asked = pb.CommandWatchTopicList(
                request_id=number, watcher_id=number, namespace="public/1", topics_pattern=".*"
            )
            client.send(commands.envelope(asked))
            told = (await client.told()).watchTopicListSuccess
            assert (told.request_id, list(told.topic)) == (number, node.names(1))
        session = session_of(proxy)
        await until(lambda: session.is_idle)
        node.peers[-1].hold("it refuses soon")
        asked = pb.CommandWatchTopicList(
            request_id=7, watcher_id=7, namespace="public/none", topics_pattern=".*"
        )
        client.send(commands.envelope(asked))
        await until(lambda: not session.is_idle)
        node.peers[-1].go_on("it refuses soon")
        assert (await client.told()).type == BaseCommand.ERROR
        assert session.is_idle


async def test_a_list_by_an_id_of_the_proxy_s_own_is_refused_and_the_next_one_comes() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        ask(client, 1, OWN_IDS)
        refused = await client.told()
        assert (refused.error.request_id, error_of(refused)) == (
            OWN_IDS,
            ServerError.NotAllowedError,
        )
        ask(client, 1, 1)
        assert list((await client.told()).getTopicsOfNamespaceResponse.topics) == node.names(1)
        client.send(commands.envelope(look_up(OWN_IDS)))  # at once, as its link is there
        assert error_of(await client.told()) == ServerError.NotAllowedError


async def test_commands_of_a_consumer_go_to_its_node_in_their_order() -> None:
    """Also while its controller is looked up."""
    asked: list[int] = []
    looks = asyncio.Event()

    def controller(peer: Peer) -> Routes:
        async def lookup(command: BaseCommand) -> None:
            await looks.wait()
            peer.send(
                pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl=f"pulsar://{HOST}:{server.port}",
                    response=pb.CommandLookupTopicResponse.Connect,
                )
            )

        async def note(command: BaseCommand) -> None:
            asked.append(command.type)

        return {BaseCommand.LOOKUP: lookup, **dict.fromkeys(OF_A_CONSUMER, note)}

    async with (
        serving(controller) as server,
        proxy_before(server.port) as proxy,
        raw(proxy.port) as client,
    ):
        await client.handshake()
        client.send(
            commands.envelope(pb.CommandScalableConsumerReport(request_id=1, consumer_id=1))
        )
        assert error_of(await client.told()) == ServerError.ConsumerNotFound
        wanted = subscribe("public/default/orders", request_id=2)
        client.send(commands.envelope(wanted))
        client.send(
            commands.envelope(pb.CommandScalableConsumerReport(request_id=3, consumer_id=1))
        )
        left = pb.CommandScalableTopicUnsubscribe(request_id=4, consumer_id=1)
        client.send(commands.envelope(left))
        other = pb.CommandScalableTopicUnsubscribe(request_id=5, consumer_id=2)
        client.send(commands.envelope(other))  # which does not wait for the first
        assert commands.request_id_of(await client.told()) == 5
        looks.set()
        await until(lambda: len(asked) == 3)
        assert asked == list(OF_A_CONSUMER)
        assert not session_of(proxy)._turns


async def test_what_a_node_does_not_take_is_memory_of_the_client_that_sent_it() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        client.send(commands.envelope(look_up(1)))
        await client.told()
        (peer,), gate = proxy.proxy.wire.peers, proxy.proxy.wire.gate
        await until(lambda: not gate.memory)
        node.peers[-1].hold("a node that is busy")
        for number in range(300):
            asked = pb.CommandWatchScalableTopics(watch_id=number, namespace="public/1")
            asked.property_filters.add(key="k", value="v" * 60_000)
            client.send(commands.envelope(asked))
        link = there(session_of(proxy)._home)
        await until(lambda: link in peer._holds)
        assert gate.memory == peer.memory >= link.unsent > 256 << 10
        gate.account.limits = AccountLimits(memory=256 << 10)
        node.send(node.peers[-1], look_up_told(2))  # so that the gate looks
        await until(lambda: gate.counts[PortRefusal.MEMORY] == 1)
        await until(lambda: not (gate.memory or link.is_open))


class LettingNobodyIn:
    """Refuses the credentials of everybody."""

    def __init__(self) -> None:
        self.asked = 0

    async def admit(self, connect: pb.CommandConnect, visitor: Visitor) -> AdmittedPeer:
        self.asked += 1
        raise RefusedError(ServerError.AuthenticationError, "who are you?")

    async def admit_again(self, shown: pb.AuthData, visitor: Visitor) -> AdmittedPeer:
        raise NotImplementedError


@pytest.mark.parametrize("asks", [False, True], ids=["nodes ask", "the proxy asks"])
async def test_a_client_hears_that_it_is_wrong_and_not_that_its_proxy_is(
    tmp_path: Path, asks: bool
) -> None:
    refuses, changes, shown = LettingNobodyIn(), dict[str, object](), ""
    if asks:
        changes = {"authenticationEnabled": True, "tokenSecretKey": secret_file(tmp_path)}
        shown = token()
    async with (
        serving() as one,
        serving() as two,
        proxy_before(one.port, two.port, **changes) as proxy,
        client_of(proxy, shown) as client,
    ):
        one.admission = two.admission = refuses
        client.send(commands.envelope(look_up(1)))
        told = (await client.told()).lookupTopicResponse
        assert "who are you?" in told.message
        expected = (
            (ServerError.ServiceNotReady, 2) if asks else (ServerError.AuthenticationError, 1)
        )
        assert (told.error, refuses.asked) == expected


async def test_a_link_over_the_limit_of_watches_is_ended() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        proxy.proxy.wire.gate.account.limits = AccountLimits(watches=1)
        proxy.proxy.wire.gate.account.watches = 1
        for number in range(2):
            client.send(commands.envelope(look_up(number)))
            assert (await client.told()).lookupTopicResponse.error == ServerError.TooManyRequests
        assert len(node.peers) == 2
        await until(lambda: not any(peer.is_open for peer in node.peers))
