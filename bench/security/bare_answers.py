"""The limit of what TLS costs: a server that reads no more of a request than that it is there.

python -m bench.security.bare_answers PORT TLS_PORT CERTIFICATE KEY ANSWER: it answers each request
with what the file ANSWER holds, with a node's TLS on one port and without on the other.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

import uvloop

from anabranch.broker.node.process import give_back_large_blocks
from anabranch.broker.security.tls import TlsFiles, server_context
from anabranch.devkit.nodes import HOST
from anabranch.wire.shared_reads import SharedReads


class _Answers(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None and data.endswith(b"\r\n\r\n"):
            self._transport.write(self._answer)


async def serve(port: int, tls_port: int, files: TlsFiles, answer: bytes) -> None:
    """Until the process is killed."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Answers(answer), HOST, port)
    await loop.create_server(
        lambda: SharedReads(_Answers(answer)), HOST, tls_port, ssl=server_context(files)
    )
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    given = sys.argv[1:]
    give_back_large_blocks()  # as a node
    uvloop.run(
        serve(
            int(given[0]),
            int(given[1]),
            TlsFiles(Path(given[2]), Path(given[3])),
            Path(given[4]).read_bytes(),
        )
    )
