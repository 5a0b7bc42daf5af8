"""Commands of clients through a proxy: which ones nodes owe answers to, and which are refused."""

from __future__ import annotations

from anabranch.broker.proxy.link import OWN_IDS
from anabranch.broker.proxy.server import ProxyClient
from anabranch.broker.proxy.session import ClientSession
from anabranch.core.strangers import AccountLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.listing_node import ask, client_of, listed
from support.memory_cluster import until
from support.proxied import RunningProxy
from support.there import there
from support.wire import error_of


def look_up(number: int) -> pb.CommandLookupTopic:
    return pb.CommandLookupTopic(topic="topic://a/b/c", request_id=number)


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


async def test_a_link_over_the_limit_of_watches_is_ended() -> None:
    async with listed() as (proxy, node), client_of(proxy) as client:
        proxy.proxy.wire.gate.account.limits = AccountLimits(watches=1)
        proxy.proxy.wire.gate.account.watches = 1
        for number in range(2):
            client.send(commands.envelope(look_up(number)))
            assert (await client.told()).lookupTopicResponse.error == ServerError.TooManyRequests
        assert len(node.peers) == 2
        await until(lambda: not any(peer.is_open for peer in node.peers))
