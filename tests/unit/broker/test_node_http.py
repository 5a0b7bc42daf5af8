"""Requests to other nodes' HTTP ports, by connections that are kept."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.node_http import (
    CannotBeSentError,
    NodeHttp,
    NodeLostError,
    NodeRequest,
    NodeUnreachableError,
)
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings import load_settings
from support.waiting import WAIT_S

BODY = b"x" * 300_000  # more than a socket holds


class Answering:
    """A server that answers each request with a large body; some connections end before that."""

    def __init__(self) -> None:
        self.connections = 0
        self.asked: list[bytes] = []
        self.ends = 0  # so many requests meet the end of their connection

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while line := await reader.readline():
            self.asked.append(line)
            while (await reader.readline()).strip():
                pass
            if self.ends:
                self.ends -= 1
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
            await writer.drain()
        writer.close()


async def test_connections_are_kept_and_only_reads_are_asked_again() -> None:
    answering = Answering()
    server = await asyncio.start_server(answering.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    address = f"{host}:{port}"
    http = NodeHttp(WAIT_S, WAIT_S, OutgoingAccess(load_settings(None, {}, {}), 10.0), is_tls=False)
    for _ in range(2):
        found = await http.ask(address, NodeRequest("GET", b"/a%2Fb?c=%20"))
        assert (found.status, found.headers) == (200, [(b"content-length", b"%d" % len(BODY))])
        assert await found.whole() == BODY
    assert answering.asked == [b"GET /a%2Fb?c=%20 HTTP/1.1\r\n"] * 2
    assert answering.connections == 1
    for value in (b"a ", b"a\t "):  # as servers pass them on
        padded = NodeRequest("GET", b"/", [(b"x-a", value)])
        assert await (await http.ask(address, padded)).whole() == BODY
    with pytest.raises(CannotBeSentError, match="cannot be passed on"):
        await http.ask(address, NodeRequest("GET", b"/", [(b"x-a", b"a\x00")]))
    unread = await http.ask(address, NodeRequest("GET", b"/"))
    await unread.close()  # its connection cannot be used again
    answering.ends = 1
    assert await (await http.ask(address, NodeRequest("GET", b"/"))).whole() == BODY
    answering.ends = 1
    with pytest.raises(NodeLostError, match=f"node {address}"):
        await http.ask(address, NodeRequest("PUT", b"/", body=b"{}"))
    assert answering.asked.count(b"PUT / HTTP/1.1\r\n") == 1
    await http.close()
    server.close()
    await server.wait_closed()


async def test_a_node_that_is_not_there_is_named() -> None:
    http = NodeHttp(WAIT_S, WAIT_S, OutgoingAccess(load_settings(None, {}, {}), 10.0), is_tls=False)
    with pytest.raises(NodeUnreachableError, match="cannot be reached"):
        await http.ask("127.0.0.1:1", NodeRequest("GET", b"/"))
    await http.close()
