"""Nodes as a proxy knows them: found by one that is named, and tried again when they had failed."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.proxy import nodes as known
from anabranch.proxy.nodes import KnownNodes
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import PROTOCOL_VERSION
from anabranch.wire.errors import ConnectError
from support.proxied import before_nodes, proxied, served_nodes
from support.waiting import WAIT_S, until
from support.wire import HOST, serving

HELLO = pb.CommandConnect(client_version="test", protocol_version=PROTOCOL_VERSION)


async def test_one_node_that_is_named_tells_of_all() -> None:
    async with served_nodes(2) as served:
        nodes = KnownNodes(before_nodes(served[0].web))
        await nodes.refresh()
        assert set(nodes.web.addresses) == {each.web for each in served}
        assert set(nodes.binary.addresses) == {each.binary for each in served}
        assert (nodes.known, nodes.answering) == (2, 2)
        await nodes.close()


async def test_a_proxy_takes_its_own_address_for_no_node() -> None:
    async with proxied(count=1) as (proxy, _):
        address = proxy.web_url.removeprefix("http://")
        nodes = KnownNodes(before_nodes(address, servicePort=1, webServicePort=2))
        await nodes.refresh()
        assert nodes.binary.addresses == (proxy.service_url.removeprefix("pulsar://"),)
        mine = KnownNodes(proxy.settings)
        assert mine.is_own(address)
        await nodes.close()
        await mine.close()


async def test_a_node_that_says_nothing_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "CONNECT_S_MAX", 0.2)
    met: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: met.append(writer), HOST, 0)
    stuck = f"{HOST}:{silent.sockets[0].getsockname()[1]}"
    async with silent, serving() as node:
        there = f"{HOST}:{node.port}"
        nodes = KnownNodes(before_nodes(f"{HOST}:1"))
        nodes.binary.learn([stuck, there])
        for address in (stuck, there):
            hello = pb.CommandConnect()
            hello.CopyFrom(HELLO)
            made = asyncio.create_task(nodes.joined(ClientConnection, address, hello))
            await asyncio.wait([made], timeout=WAIT_S)
            if address == stuck:
                with pytest.raises(ConnectError, match="does not answer CONNECT"):
                    made.result()
            else:
                made.result().abort("enough")
        assert (nodes.binary.failing, nodes.binary.order()[0]) == ((stuck,), there)
        await nodes.close()
        for writer in met:
            writer.close()


async def test_a_binary_port_that_has_failed_is_tried_at_each_look() -> None:
    async with serving() as node:
        nodes = KnownNodes(before_nodes(f"{HOST}:1"))
        address = f"{HOST}:{node.port}"
        nodes.binary.learn([address])
        nodes.binary.failed(address, "the test says so")
        assert nodes.binary.answering == 0
        await nodes.refresh()
        assert nodes.binary.answering == 1
        await until(lambda: not node.peers)
        await nodes.close()
