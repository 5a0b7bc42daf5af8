"""The binary protocol through a proxy: each answer, its addresses, and nodes that go away."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.core.strangers import PortRefusal
from anabranch.proxy.link import OWN_IDS
from anabranch.proxy.server import ProxyClient
from anabranch.proxy.session import ClientSession
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import NO_REQUEST
from anabranch.wire.errors import RefusedError
from anabranch.wire.framing import FRAME_BYTES_MAX
from support.binary import subscribe
from support.memory_cluster import WAIT_S, until
from support.proxied import RunningProxy, ServedNode, create_topic, proxied
from support.secured_proxy import ADMIN, BOSS, READER, furnished_proxy
from support.there import there
from support.wire import is_refused, raw

Nodes = list[ServedNode]
NAME = "public/default/orders"
FULL = f"topic://{NAME}"


async def lookup(client: ClientConnection, topic: str = FULL) -> pb.CommandLookupTopicResponse:
    return (await client.request(pb.CommandLookupTopic(topic=topic), WAIT_S)).lookupTopicResponse


async def test_a_watch_tells_the_proxy_s_addresses() -> None:
    async with proxied() as (proxy, nodes):
        owner = await create_topic(nodes)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await until(lambda: bool(pushed))
            update = pushed[0].scalableTopicUpdate
            assert (update.session_id, update.dag.controller_broker_url) == (7, proxy.service_url)
            assert {each.broker_url for each in update.dag.segment_brokers} == {proxy.service_url}
            await owner.node.operations.topics.split(NAME, 0)
            await until(lambda: len(pushed[-1].scalableTopicUpdate.dag.segments) == 4)
            versions = [each.scalableTopicUpdate.dag.version for each in pushed]
            assert versions == sorted(set(versions))
            assert (await lookup(client)).brokerServiceUrl == proxy.service_url


async def test_a_layout_that_is_longer_than_what_is_read_at_once_comes_whole() -> None:
    async with proxied(count=1) as (proxy, nodes):
        await create_topic(nodes, 3_000)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            for number in range(3):
                client.send(pb.CommandScalableTopicLookup(session_id=number, topic=FULL))
            await until(lambda: len(pushed) == 3)
        assert {len(each.scalableTopicUpdate.dag.segments) for each in pushed} == {3_000}
        assert pushed[0].ByteSize() > 64 * 1024


async def test_a_client_ends_with_its_node_and_another_one_serves_it_when_it_comes_again() -> None:
    async with proxied() as (proxy, nodes):
        await create_topic(nodes)
        for _ in range(2):
            async with proxy.client() as client:
                client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
                await lookup(client)
                for each in nodes:
                    each.cut_links()
                await asyncio.wait_for(asyncio.wait([client.closed]), WAIT_S)
        assert proxy.proxy.counts.lost_links >= 2
        await nodes[0].die()
        for _ in range(2):
            async with proxy.client() as client:
                await lookup(client)
        await until(lambda: no_links(proxy))


def no_links(proxy: RunningProxy) -> bool:
    """Whether nothing is left of clients that have gone: no link, no task."""
    account = proxy.proxy.wire.gate.account
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    left = {each for each in names if each.startswith(("ClientSession.", "ListRelay.", "Peer."))}
    return (account.watches, account.connections) == (0, 0) and not left


async def at_another_node(client: ClientConnection, proxy: RunningProxy, nodes: Nodes) -> str:
    """A topic that another node than the client's home controls."""
    await lookup(client)
    home = session_of(proxy)._home
    assert home is not None
    for number in range(50):
        name = f"{NAME}-{number}"
        found = await nodes[0].node.cluster.controller(name)
        if found.settings.service_url != f"pulsar://{home.node}":
            await found.operations.topics.create(name, 2, {})
            return name
    raise AssertionError("one node controls everything")


def session_of(proxy: RunningProxy) -> ClientSession:
    (peer,) = proxy.proxy.wire.peers
    assert isinstance(peer, ProxyClient)
    return there(peer.session)


async def test_a_consumer_whose_node_is_gone_subscribes_again_reports_and_leaves() -> None:
    async with proxied() as (proxy, nodes):
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            topic = await at_another_node(client, proxy, nodes)
            await client.request(subscribe(topic), WAIT_S)
            link = session_of(proxy)._consumers[1]
            owner = next(each for each in nodes if each.binary == link.node)
            owner.cut_links()
            await until(lambda: bool(pushed))
            assert pushed[0].type == BaseCommand.CLOSE_CONSUMER
            closed = pushed[0].close_consumer
            assert (closed.consumer_id, closed.request_id) == (1, NO_REQUEST)
            assert "subscribe again" in closed.reason
            answer = await client.request(subscribe(topic), WAIT_S)  # the same one
            given = answer.scalableTopicSubscribeResponse.assignment
            assert {part.segment_id for part in given.segments} == {0, 1}
            report = pb.CommandScalableConsumerReport(consumer_id=1)
            await client.request(report, WAIT_S)
            await client.request(pb.CommandScalableTopicUnsubscribe(consumer_id=1), WAIT_S)
            await is_refused(client.request(report, WAIT_S), pb.ServerError.ConsumerNotFound)
        await until(lambda: no_links(proxy))


async def test_what_a_lost_node_owes_is_refused_and_the_client_goes_on() -> None:
    async with proxied() as (proxy, nodes):
        async with proxy.client() as client:
            topic = await at_another_node(client, proxy, nodes)
            await client.request(subscribe(topic), WAIT_S)
            link = session_of(proxy)._consumers[1]
            owner = next(each for each in nodes if each.binary == link.node)
            for peer in owner.wire.peers:
                peer.hold("it stands still")
            report = pb.CommandScalableConsumerReport(consumer_id=1)
            asked = asyncio.ensure_future(client.request(report, WAIT_S))
            await until(lambda: bool(link.asked))
            owner.cut_links()
            await is_refused(asked, ServerError.ServiceNotReady, "has gone")
            await lookup(client)
        await until(lambda: no_links(proxy))


async def test_a_home_that_a_node_ends_as_idle_is_opened_again_for_who_has_consumers() -> None:
    async with proxied() as (proxy, nodes):
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client, proxy.client() as other:
            await lookup(other)
            await other.request(pb.CommandGetTopicsOfNamespace(namespace="public/default"), WAIT_S)
            other.abort("so that there is one session")
            await until(lambda: len(proxy.proxy.wire.peers) == 1)
            topic = await at_another_node(client, proxy, nodes)
            await client.request(subscribe(topic), WAIT_S)
            home = there(session_of(proxy)._home)
            for each in nodes:
                for peer in list(each.wire.peers):
                    if each.binary == home.node:
                        peer.turn_away(PortRefusal.IDLE, "nothing was asked")
            await until(lambda: session_of(proxy)._home is None)
            await lookup(client)
            assert not pushed
            await client.request(pb.CommandScalableConsumerReport(consumer_id=1), WAIT_S)
        assert proxy.proxy.counts.lost_links == 0
        async with proxy.client() as client:  # which has nothing else
            await lookup(client)
            for each in nodes:
                for peer in list(each.wire.peers):
                    peer.turn_away(PortRefusal.IDLE, "nothing was asked")
            await asyncio.wait_for(asyncio.wait([client.closed]), WAIT_S)
        assert proxy.proxy.wire.gate.counts[PortRefusal.IDLE] == 1
        assert proxy.proxy.counts.lost_links == 0


async def test_the_end_of_a_client_is_the_end_of_its_links_and_of_nobody_else_s() -> None:
    async with proxied() as (proxy, nodes):

        def links() -> int:
            return sum(
                peer.client_version == "anabranch" for each in nodes for peer in each.wire.peers
            )

        async with proxy.client() as stays:
            stays.send(pb.CommandScalableTopicLookup(session_id=1, topic=FULL))
            async with proxy.client() as goes:
                goes.send(pb.CommandScalableTopicLookup(session_id=1, topic=FULL))
                await until(lambda: links() == 2)
            await until(lambda: links() == 1)
            await lookup(stays)


async def test_without_a_node_every_command_is_refused_by_name() -> None:
    async with proxied() as (proxy, nodes):
        for each in nodes:
            await each.die()
        async with proxy.client() as client:
            with pytest.raises(RefusedError) as refused:
                await lookup(client)
            assert refused.value.code == pb.ServerError.ServiceNotReady
            assert "no node answers this proxy" in refused.value.reason
            assert nodes[0].binary in refused.value.reason
            asked = client.request(subscribe(NAME), WAIT_S)
            await is_refused(asked, pb.ServerError.ServiceNotReady)
            await until(lambda: proxy.proxy.nodes.answering == 0)
            assert (await proxy.http.get("/readyz")).status_code == 503


async def test_a_foreign_client_is_refused_what_a_node_would_refuse_it() -> None:
    async with proxied() as (proxy, _), raw(proxy.port) as client:
        await client.handshake()  # does not say that it reads Kafka
        asked = pb.CommandScalableTopicLookup(session_id=3, topic=FULL)
        client.send(BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=asked))
        answer = await client.told()
        assert answer.scalableTopicUpdate.session_id == 3
        assert "does not read Kafka" in answer.scalableTopicUpdate.message


async def test_a_segment_s_lineage_is_told_as_the_layout_has_it() -> None:
    async with proxied() as (proxy, nodes):
        owner = await create_topic(nodes)
        topics = owner.node.operations.topics
        await topics.split(NAME, 0)
        await topics.merge(NAME, 3, 1)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await until(lambda: bool(pushed))
            dag = pushed[-1].scalableTopicUpdate.dag
            known = {part.segment_id: part for part in dag.segments}
            for of, line in ((0, [0, 2, 3, 4]), (1, [1, 4]), (2, [0, 2]), (4, [0, 1, 3, 4])):
                asked = pb.CommandScalableTopicLineage(topic=FULL, segment_id=of)
                told = (await client.request(asked, WAIT_S)).scalableTopicLineageResponse
                assert list(told.segments) == [known[each] for each in line]
                assert (told.epoch, told.incarnation) == (dag.epoch, dag.incarnation)
            gone = pb.CommandScalableTopicLineage(topic=FULL, segment_id=9)
            with pytest.raises(RefusedError, match="9; the active segments are 2, 4"):
                await client.request(gone, WAIT_S)


async def test_traffic_reports_reach_the_controller() -> None:
    async with proxied() as (proxy, nodes):
        await create_topic(nodes, 1)
        topic = nodes[0].node.view.topic(NAME)
        assert topic is not None
        async with proxy.client() as client:
            answer = await client.request(
                pb.CommandScalableTrafficReport(
                    topic=FULL,
                    incarnation=topic.incarnation,
                    client_id=5,
                    since_ms=1_000,
                    segments=[pb.SegmentTraffic(segment_id=0, messages=10, bytes=100)],
                ),
                WAIT_S,
            )
            assert answer.scalableTrafficReportResponse.interval_ms > 0


async def test_ids_that_the_proxy_counts_by_are_refused_to_clients() -> None:
    async with proxied(count=1) as (proxy, _), raw(proxy.port) as client:
        await client.handshake()
        for number in (OWN_IDS, OWN_IDS + 1, NO_REQUEST - 1):
            asked = pb.CommandLookupTopic(topic=FULL, request_id=number)
            client.send(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked))
            said = (await client.told()).lookupTopicResponse
            assert (said.request_id, said.error) == (number, ServerError.NotAllowedError)
        asked = pb.CommandLookupTopic(topic=FULL, request_id=OWN_IDS - 1)
        client.send(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked))
        assert (await client.told()).lookupTopicResponse.request_id == OWN_IDS - 1


async def test_commands_keep_their_order_while_the_home_is_being_opened() -> None:
    async with proxied(count=1) as (proxy, nodes):
        await create_topic(nodes)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            for number in range(100):
                client.send(pb.CommandScalableTopicLookup(session_id=number, topic=FULL))
                client.send(pb.CommandScalableTopicClose(session_id=number))
            client.send(pb.CommandScalableTopicLookup(session_id=777, topic=FULL))
            await lookup(client)
            account = nodes[0].wire.gate.account
            await until(lambda: account.watches == 1)


async def test_a_client_that_does_not_read_costs_bounded_memory_and_nobody_else() -> None:
    async with proxied(count=1) as (proxy, nodes):
        await create_topic(nodes, 3_000)
        async with raw(proxy.port) as deaf, proxy.client() as other:
            hello = pb.CommandConnect(client_version="anabranch", protocol_version=21)
            deaf.send(commands.envelope(hello))
            await deaf.welcomed()
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(400):  # layouts of 200 KB each
                asked = pb.CommandScalableTopicLookup(session_id=number, topic=FULL)
                deaf.send(commands.envelope(asked))
            home_peers = nodes[0].wire.peers
            await until(lambda: any(not peer.is_drained for peer in home_peers))
            for _ in range(20):
                await lookup(other)
            assert max(peer.memory for peer in proxy.proxy.wire.peers) < 16 << 20
        await until(lambda: no_links(proxy))


async def test_hostile_frames_end_the_client_that_sends_them_and_nobody_else() -> None:
    async with proxied(count=1) as (proxy, _), proxy.client() as other:
        lookup_of_nothing = BaseCommand(type=BaseCommand.LOOKUP)
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">II", 3, 3),
            struct.pack(">II", FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX - 3),
            struct.pack(">II", 8, 100) + b"xxxx",
            struct.pack(">II", 6, 2) + b"\xff\xff",
        ):
            async with raw(proxy.port) as client:
                await client.handshake()
                client.send(lookup_of_nothing)
                assert (await client.told()).error.error == ServerError.UnsupportedVersionError
                client.writer.write(garbage)
                while await client.answer() is not None:
                    pass
        await lookup(other)
        assert other.is_open


# --- what a node ends, or refuses, of one client of a proxy: that client's affair alone -----------


OF_ACME = "topic://acme/shop/orders"


async def test_who_loses_a_watch_of_a_list_is_told_and_no_node_is_lost(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path) as (proxy, _):
        asked = pb.CommandWatchTopicList(namespace="acme/shop", watcher_id=1, topics_pattern=".*")
        rights = f"{ADMIN}/namespaces/acme/shop/permissions/{READER}"
        with capture_logs() as logged:
            async with proxy.client(READER) as reader, proxy.client(BOSS) as boss:
                for client in (reader, boss):
                    answer = await client.request(asked, WAIT_S)
                    assert list(answer.watchTopicListSuccess.topic) == [OF_ACME]
                assert (await proxy.ask("DELETE", rights, BOSS)).status_code == 204
                await asyncio.wait_for(asyncio.wait([reader.closed]), WAIT_S)
                assert boss.is_open
                assert proxy.running.proxy.wire.gate.counts[PortRefusal.REVOKED] == 1
        assert not {line["event"] for line in logged} & {"proxy.node_lost", "proxy.link_lost"}
