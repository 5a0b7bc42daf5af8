"""Requests to other nodes' HTTP ports, by connections that are kept."""

from __future__ import annotations

import asyncio

from anabranch.broker import node_http
from anabranch.broker.node_http import NodeHttp, NodeRequest
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings import load_settings
from support.waiting import WAIT_S, until

# Its last byte is more than may wait for a reader, so the connection is not read from then on.
_BODY = b"x" * (node_http._BUFFER_BYTES + 1)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each request of a connection with a large body."""
    while await reader.readline():
        while (await reader.readline()).strip():
            pass
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY)
        await writer.drain()
    writer.close()


def test_a_connection_whose_large_answer_was_whole_at_once_answers_the_next_request() -> None:
    async def test() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        access = OutgoingAccess(load_settings(None, {}, {}), 10.0)
        http = NodeHttp(WAIT_S, WAIT_S, access, is_tls=False)

        async def ask(*, takes: bool) -> None:
            found = await http.ask(f"{host}:{port}", NodeRequest("GET", b"/"))
            await until(lambda: found.is_whole, WAIT_S)
            assert not takes or found.at_once() == _BODY
            http.give_back(found)

        for takes in (True, True, False, True):
            await ask(takes=takes)
        http.close()
        server.close()
        await server.wait_closed()

    asyncio.run(asyncio.wait_for(test(), 3 * WAIT_S))
