"""Nodes as a proxy knows them: each has a link of its own, and waits for no other."""

from __future__ import annotations

import asyncio

from anabranch.broker.proxy.nodes.known import KnownNodes
from anabranch.broker.settings.proxy import load_proxy_settings
from support.waiting import WAIT_S, until
from support.wire import HOST, serving


async def test_a_node_that_says_nothing_is_asked_once_and_keeps_nobody_from_another() -> None:
    met: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: met.append(writer), HOST, 0)
    stuck = f"{HOST}:{silent.sockets[0].getsockname()[1]}"
    async with silent, serving() as node:
        told = {"brokerWebServiceURL": f"http://{HOST}:1", "brokerProxyConnectTimeoutMs": "600000"}
        nodes = KnownNodes(load_proxy_settings(None, {}, told))
        waiting = [asyncio.create_task(nodes._asking_of(stuck)) for _ in range(2)]
        await until(lambda: bool(met))
        link = await asyncio.wait_for(nodes._asking_of(f"{HOST}:{node.port}"), WAIT_S)
        assert await nodes._asking_of(f"{HOST}:{node.port}") is link
        await nodes.close()
        await asyncio.wait(waiting)
        for writer in met:
            writer.close()
    assert len(met) == 1
