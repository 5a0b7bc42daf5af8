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
from anabranch.wire.errors import RefusedError
from support.memory_cluster import WAIT_S, MemoryCluster
from support.proxied import RunningProxy, ServedNode, with_proxy
from support.secured_proxy import ADMIN, BOSS, READER, SecuredProxy, with_secured_proxy

FULL = "topic://acme/shop/orders"


def test_who_loses_a_watch_of_a_list_is_told_and_the_node_is_not_taken_for_lost(
    tmp_path: Path,
) -> None:
    async def test(proxy: SecuredProxy, _: list[ServedNode], cluster: MemoryCluster) -> None:
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
        said = {line["event"] for line in logged}
        assert not said & {"proxy.node_lost", "proxy.link_lost"}

    with_secured_proxy(test, tmp_path)


def test_a_role_that_has_too_many_connections_does_others_no_harm(tmp_path: Path) -> None:
    async def test(proxy: SecuredProxy, _: list[ServedNode], cluster: MemoryCluster) -> None:
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
                with pytest.raises(
                    RefusedError, match="brokerMaxConnectionsPerPrincipal"
                ) as refused:
                    await third.request(asked, WAIT_S)
                assert refused.value.code == ServerError.TooManyRequests  # as by the node itself
                await boss.request(asked, WAIT_S)
        assert "proxy.node_lost" not in {line["event"] for line in logged}

    with_secured_proxy(test, tmp_path, 1, {"brokerMaxConnectionsPerPrincipal": 2})


def test_who_watches_a_list_that_takes_too_much_is_told_so_and_no_node_is_taken_for_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(proxy: RunningProxy, nodes: list[ServedNode], _: MemoryCluster) -> None:
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
                located = await nodes[0].node.operations.topics.access.find_controller(made)
                owner = next(each for each in nodes if each.node.id == located.broker)
                await owner.node.operations.topics.create(made, 1, {})
                await asyncio.wait_for(asyncio.wait([watcher.closed]), WAIT_S)
                assert other.is_open
                assert proxy.proxy.wire.gate.counts[PortRefusal.COSTLY] == 1
        said = {line["event"] for line in logged}
        assert not said & {"proxy.node_lost", "proxy.link_lost"}
        assert "wire.refused" in caplog.text
        assert caplog.text.count("microseconds for each topic") == 3  # node, proxy and client

    with_proxy(test)
