"""What a client's connections leave behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.access import Tls
from anabranch.client._topics.access import NodeAccess
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.framing import encode_frame
from support.authority import Authority, Issued
from support.waiting import WAIT_S
from support.wire import HOST


@contextmanager
def silent_node(issued: Issued) -> Iterator[int]:
    """The port of one that welcomes a client by TLS, and neither reads nor says anything more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    welcome = pb.CommandConnected(server_version="silent", protocol_version=21)
    over = threading.Event()

    def serve() -> None:
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as client:
            client.recv(65_536)
            client.sendall(encode_frame(commands.envelope(welcome).SerializeToString()))
            over.wait(WAIT_S)

    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(WAIT_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("by", ["its user", "the client"])
def test_nothing_is_left_of_a_connection_without_a_goodbye(tmp_path: Path, by: str) -> None:
    authority = Authority(tmp_path)

    async def test(port: int) -> None:
        access = NodeAccess(f"pulsar+ssl://{HOST}:{port}", Tls(ca_file=authority.file))
        made = await access.connect(HOST, port, on_push=lambda _: None, timeout_s=WAIT_S)
        if by == "its user":
            made.close("it is over")
            await access.end()
            assert made.closed.done()
        else:
            await access.end()
            assert await made.closed == "the client was closed"

    with silent_node(authority.issue("node", server=True)) as port:
        asyncio.run(test(port))
        gc.collect()  # what an open socket says then fails the test
