"""Requests to a node's whole interface, by whoever they name."""

from __future__ import annotations

import httpx
from starlette.types import Receive, Scope, Send

from anabranch.broker.http.app import create_app
from anabranch.broker.requester import asked_by
from anabranch.core.security.principal import Principal
from support.memory_cluster import WAIT_S, MemoryNode


def asking(node: MemoryNode) -> httpx.AsyncClient:
    """A client of the node's whole interface, where the headers `who` and `by` say who asks, and by
    which proxy.
    """
    app = create_app(node.operations, node.settings, node.metrics)

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        who, by = (headers.get(name, b"").decode() for name in (b"who", b"by"))
        with asked_by(Principal(who, by)):
            await app(scope, receive, send)

    transport = httpx.ASGITransport(app=known)
    return httpx.AsyncClient(transport=transport, base_url="http://node", timeout=WAIT_S)
