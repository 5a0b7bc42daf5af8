"""What a node ends, or refuses, of one client of a proxy: that client's affair alone."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.core.strangers import PortRefusal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import ServerError
from support.memory_cluster import WAIT_S
from support.proxied import create_topic, proxied
from support.secured_proxy import ADMIN, BOSS, READER, furnished_proxy
from support.wire import is_refused

FULL = "topic://acme/shop/orders"


async def test_who_loses_a_watch_of_a_list_is_told_and_no_node_is_lost(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path) as (proxy, _):
        asked = pb.CommandWatchTopicList(namespace="acme/shop", watcher_id=1, topics_pattern=".*")
        rights = f"{ADMIN}/namespaces/acme/shop/permissions/{READER}"
        with capture_logs() as logged:
            async with proxy.client(READER) as reader, proxy.client(BOSS) as boss:
                for client in (reader, boss):
                    answer = await client.request(asked, WAIT_S)
                    assert list(answer.watchTopicListSuccess.topic) == [FULL]
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
