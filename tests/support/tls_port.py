"""The two ports of a node with TLS, and nothing much behind them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.security.files import ReadAgain
from anabranch.broker.security.handshakes import Handshakes
from anabranch.broker.security.tls import TlsFiles, read_again
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.server.identity import Admission
from anabranch.wire.server.server import WireServer
from support.authority import Issued
from support.waiting import WAIT_S
from support.wire import HOST, Raw, lookups

SLOW_S = 60.0


def counted(handshakes: Handshakes) -> dict[str, int]:
    """The refusals that there were, by their reasons."""
    return {kind: count for kind, count in handshakes.refused.items() if count}


class TlsPort:
    """The two ports of a node with TLS."""

    def __init__(
        self,
        context: ReadAgain[ssl.SSLContext],
        web: Handshakes,
        binary: Handshakes,
        wire: WireServer,
    ) -> None:
        self.wire = wire
        self.context = context
        self.web = web
        self.binary = binary
        self.web_port = self.binary_port = 0

    async def get(self, context: ssl.SSLContext) -> str:
        async with httpx.AsyncClient(verify=context, timeout=WAIT_S) as client:
            answer = await client.get(f"https://{HOST}:{self.web_port}/")
            return answer.text

    async def connect(self, context: ssl.SSLContext | None) -> Raw:
        reader, writer = await asyncio.open_connection(HOST, self.binary_port, ssl=context)
        return Raw(reader, writer)


@asynccontextmanager
async def tls_port(
    server: Issued,
    trusted: Path | None = None,
    *,
    app: ASGIApp | None = None,
    required: bool = False,
    seconds: float = SLOW_S,
    admission: Admission | None = None,
) -> AsyncIterator[TlsPort]:
    context = read_again(TlsFiles(server.certificate, server.key, trusted, required))
    http = HttpServer(app or _scheme, None)
    wire = WireServer(lookups, "test", ConnectionLimits(), admission)
    await http.start()
    web, binary = (
        Handshakes(name, lambda: context.current, made, seconds)
        for name, made in (("web", http.connection), ("binary", wire.peer))
    )
    port = TlsPort(context, web, binary, wire)
    with bind(HOST, 0) as held, bind(HOST, 0) as held_binary:
        web.listen(held)
        binary.listen(held_binary)
        port.web_port, port.binary_port = (each.getsockname()[1] for each in (held, held_binary))
        try:
            yield port
        finally:
            await web.stop()
            await binary.stop()
            await wire.stop()
            await http.stop()


async def _scheme(scope: Scope, _receive: Receive, send: Send) -> None:
    body = str(scope["scheme"]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
