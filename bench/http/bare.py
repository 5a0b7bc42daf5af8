"""The limit of HTTP look-ups: a node's server with an application that always says the same.

python -m bench.http.bare PORT
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from starlette.types import Receive, Scope, Send

from anabranch.broker.http.server import HttpServer, bind

_BODY = b"x" * 150  # about as long as a look-up's answer
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"150")]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: 200 and a constant."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


async def serve(port: int) -> None:
    """Until the process is killed."""
    with bind("127.0.0.1", port) as held:
        server = HttpServer(application, held)
        await server.start()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
