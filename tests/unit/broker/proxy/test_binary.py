"""The binary protocol through a proxy: every answer, its addresses, and nodes that go away."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.core.strangers import PortRefusal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import ClientConnection
from anabranch.wire.commands import NO_REQUEST
from anabranch.wire.errors import RefusedError
from support.binary import subscribe
from support.memory_cluster import WAIT_S, until
from support.proxied import create_topic, proxied
from support.secured_proxy import ADMIN, BOSS, READER, furnished_proxy
from support.wire import is_refused, raw

NAME = "public/default/orders"
FULL = f"topic://{NAME}"


async def lookup(client: ClientConnection, topic: str = FULL) -> pb.CommandLookupTopicResponse:
    return (await client.request(pb.CommandLookupTopic(topic=topic), WAIT_S)).lookupTopicResponse


async def test_a_watch_tells_the_proxy_s_addresses_and_goes_on_elsewhere_without_repeats() -> None:
    async with proxied() as (proxy, nodes):
        owner = await create_topic(nodes)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await until(lambda: bool(pushed))
            update = pushed[0].scalableTopicUpdate
            assert (update.session_id, update.dag.controller_broker_url) == (7, proxy.service_url)
            assert {each.broker_url for each in update.dag.segment_brokers} == {proxy.service_url}
            told = len(pushed)
            for each in nodes:
                each.cut_links()
            await until(lambda: proxy.proxy.shared.counts.moved_watches >= 1)
            await lookup(client)
            assert len(pushed) == told  # the same version is no news
            await owner.node.operations.topics.split(NAME, 0)
            await until(lambda: len(pushed[-1].scalableTopicUpdate.dag.segments) == 4)
            versions = [each.scalableTopicUpdate.dag.version for each in pushed]
            assert versions == sorted(set(versions))


async def test_a_consumer_whose_node_is_gone_subscribes_again_reports_and_leaves() -> None:
    async with proxied() as (proxy, nodes):
        owner = await create_topic(nodes)
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            await client.request(subscribe(NAME), WAIT_S)
            owner.cut_links()
            await until(lambda: bool(pushed))
            assert pushed[0].type == BaseCommand.CLOSE_CONSUMER
            closed = pushed[0].close_consumer
            assert (closed.consumer_id, closed.request_id) == (1, NO_REQUEST)
            assert "subscribe again" in closed.reason
            answer = await client.request(subscribe(NAME), WAIT_S)  # the same one
            given = answer.scalableTopicSubscribeResponse.assignment
            assert {part.segment_id for part in given.segments} == {0, 1}
            report = pb.CommandScalableConsumerReport(consumer_id=1)
            await client.request(report, WAIT_S)
            await client.request(pb.CommandScalableTopicUnsubscribe(consumer_id=1), WAIT_S)
            await is_refused(client.request(report, WAIT_S), pb.ServerError.ConsumerNotFound)


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


async def test_without_a_node_every_command_is_refused_by_name_and_served_again_later() -> None:
    async with proxied() as (proxy, nodes):
        pushed: list[BaseCommand] = []
        async with proxy.client(pushed.append) as client:
            await lookup(client)
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic=FULL))
            await lookup(client)
            for each in nodes:
                await each.die()
            with pytest.raises(RefusedError) as refused:
                await lookup(client)
            assert refused.value.code == pb.ServerError.ServiceNotReady
            assert "no node answers this proxy" in refused.value.reason
            assert nodes[0].binary in refused.value.reason
            asked = client.request(subscribe(NAME), WAIT_S)
            await is_refused(asked, pb.ServerError.ServiceNotReady)
            await until(lambda: proxy.proxy.shared.nodes.answering == 0)
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


async def test_a_role_that_has_too_many_connections_does_others_no_harm(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path, 1, {"brokerMaxConnectionsPerPrincipal": 2}) as (proxy, _):
        asked = pb.CommandGetTopicsOfNamespace(namespace="acme/shop")
        with capture_logs() as logged:
            async with (
                proxy.client(READER) as first,
                proxy.client(READER) as second,
                proxy.client(READER) as third,
                proxy.client(BOSS) as boss,
            ):
                for client in (first, second):
                    await client.request(asked, WAIT_S)
                limit = "brokerMaxConnectionsPerPrincipal"  # as by the node itself
                await is_refused(third.request(asked, WAIT_S), ServerError.TooManyRequests, limit)
                await boss.request(asked, WAIT_S)
        assert "proxy.node_lost" not in {line["event"] for line in logged}


async def test_who_watches_a_list_that_takes_too_much_is_told_so_and_no_node_is_taken_for_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxied() as (proxy, nodes):
        asked = pb.CommandWatchTopicList(
            namespace="public/default", watcher_id=1, topics_pattern="public/default/[a-z]{1,9}"
        )
        made, seconds = "public/default/a", itertools.count(step=2)
        with capture_logs() as logged:
            async with proxy.client() as watcher, proxy.client() as other:
                await watcher.request(asked, WAIT_S)
                await other.request(pb.CommandLookupTopic(topic="topic://public/default/a"), WAIT_S)
                for each in nodes:  # as if each look took as long
                    lists = each.node.operations.topics.lists
                    lists._catching_up.used = lambda: next(seconds)
                await create_topic(nodes, 1, made)
                await asyncio.wait_for(asyncio.wait([watcher.closed]), WAIT_S)
                assert other.is_open
                assert proxy.proxy.wire.gate.counts[PortRefusal.COSTLY] == 1
        assert not {line["event"] for line in logged} & {"proxy.node_lost", "proxy.link_lost"}
        assert "wire.refused" in caplog.text
        assert caplog.text.count("microseconds for each topic") == 3  # node, proxy and client
