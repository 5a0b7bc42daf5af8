"""What strangers may use up of a node's HTTP port; each limit is named when met."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import msgspec
import pytest
import structlog
from starlette.types import Receive, Scope, Send

from anabranch.broker.http.guards import requests
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.settings import load_settings
from support.raw_http import connected
from support.waiting import WAIT_S, until
from support.wire import on_asyncio, on_uvloop

pytestmark = on_uvloop

GET = b"GET /x HTTP/1.1\r\nHost: n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body; to /large with more than a socket takes."""
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    content = b"x" * 50_000_000 if scope["path"] == "/large" else str(size).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@asynccontextmanager
async def serving(
    body_bytes_max: int = 1 << 20, request_s_max: float = 30.0, **settings: object
) -> AsyncIterator[tuple[HttpServer, int]]:
    limits = msgspec.structs.replace(
        load_settings(None, {}, settings).http_limits,
        body_bytes_max=body_bytes_max,
        request_s_max=request_s_max,
    )
    with bind("127.0.0.1", 0) as held:
        server = HttpServer(GuardMiddleware(echo, limits), held, limits)
        await server.start()
        try:
            yield server, held.getsockname()[1]
        finally:
            await server.stop()


async def test_a_head_may_be_as_long_as_the_setting_says_and_no_longer() -> None:
    async with serving(httpMaxRequestHeaderSize=1_000) as (_, port):
        for extra, status in ((900, 200), (1_000, 431), (300_000, 431)):
            async with connected(port) as client:
                client.send(GET + b"A: " + b"x" * extra + b"\r\n\r\n")
                found, said = await client.answer()
                assert found == status
                if status == 431:
                    assert "httpMaxRequestHeaderSize, 1000 bytes" in said
                    await client.ends()


async def test_a_head_without_end_is_refused_before_it_is_parsed() -> None:
    """A name, a value, many of them, or a path: of each no more than the limit and a piece."""

    async with serving() as (server, port):
        endless = (GET + b"A: " + b"x" * 5_000, GET + b"x" * 5_000, b"GET /" + b"x" * 5_000)
        for beginning in (*endless, GET + b"A: b\r\n" * 800):
            async with connected(port) as client:
                client.send(beginning)
                await asyncio.sleep(0)
                client.send(beginning[len(GET) :])
                status, said = await client.answer()
                assert (status, "8192 bytes" in said) == (431, True)
        await until(lambda: server.connections.count == 0)
        assert server.connections.refused.counts == {"header": 4}


async def test_requests_one_behind_the_other_are_all_answered() -> None:
    """However they are cut, and whatever the size of those before."""

    posted = b"POST /x HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" + b"y" * 9_000
    chunked = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    stream = (GET + b"A: " + b"x" * 7_900 + b"\r\n\r\n" + posted + chunked + b"\r\n") * 3
    async with serving() as (_, port):
        for size in (1_000, 4_096, 5_000, len(stream)):
            async with connected(port) as client:
                for start in range(0, len(stream), size):
                    client.send(stream[start : start + size])
                    await asyncio.sleep(0)
                for _ in range(3):
                    assert await client.answer() == (200, b"0")
                    assert await client.answer() == (200, b"9000")
                    assert await client.answer() == (200, b"3")


async def test_a_body_may_be_as_long_as_the_setting_says_told_or_not() -> None:
    async with serving(body_bytes_max=2_000) as (_, port):
        for size, status in ((2_000, 200), (2_001, 413)):
            chunk = f"{size:x}\r\n".encode() + b"y" * size + b"\r\n0\r\n\r\n"
            for told in (
                f"Content-Length: {size}\r\n\r\n".encode() + b"y" * size,
                b"Transfer-Encoding: chunked\r\n\r\n" + chunk,
            ):
                async with connected(port) as client:
                    client.send(b"POST /x HTTP/1.1\r\n" + told)
                    found, said = await client.answer()
                    assert found == status
                    assert status == 200 or "the body has more than 2000 bytes" in said


async def test_bodies_of_all_requests_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_BODIES_BYTES_MAX", 100_000)
    async with (
        serving(body_bytes_max=60_000) as (_, port),
        connected(port) as slow,
        connected(port) as other,
    ):
        head = b"POST /x HTTP/1.1\r\nContent-Length: 60000\r\n\r\n"
        slow.send(head + b"y" * 59_999)
        while True:  # until the first one's bytes are there
            async with connected(port) as one:
                one.send(head + b"y" * 60_000)
                status, said = await one.answer()
            if status == 503:
                break
        assert "100000 bytes already" in said
        slow.send(b"y")
        assert await slow.answer() == (200, b"60000")
        other.send(head + b"y" * 60_000)
        assert await other.answer() == (200, b"60000")


async def test_a_request_that_does_not_come_to_its_end_is_given_up() -> None:
    """Whatever is sent besides: a head or a body drop by drop, or empty lines after a request."""

    async with serving(request_s_max=0.2) as (server, port):
        for beginning in (GET, b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n"):
            async with connected(port) as client:
                client.send(beginning)
                status, said = await client.answer()
                assert (status, "not there within 0.2 s" in said) == (408, True)
                await client.ends()
        async with connected(port) as client:
            client.send(GET + b"\r\n")
            assert await client.answer() == (200, b"0")
            client.send(b"\r\n")
            await client.ends()
        await until(lambda: server.connections.count == 0)


async def test_when_there_are_too_many_the_one_that_has_waited_longest_goes() -> None:
    async with (
        serving(maxHttpServerConnections=3) as (server, port),
        connected(port) as first,
        connected(port) as second,
        connected(port),
    ):
        await until(lambda: server.connections.count == 3)
        second.send(GET)
        async with connected(port) as fourth:
            status, said = await first.answer()
            assert (status, "maxHttpServerConnections" in said) == (503, True)
            await first.ends()
            fourth.send(GET + b"\r\n")
            assert await fourth.answer() == (200, b"0")


@on_asyncio
async def test_for_each_that_comes_at_once_with_others_one_goes() -> None:
    """On a loop that takes all who wait in one turn, as uvloop does not."""

    async with serving(maxHttpServerConnections=3) as (server, port):
        address = ("127.0.0.1", port)  # all are there before the node takes the first one
        with ExitStack() as clients:
            for _ in range(20):
                clients.enter_context(socket.create_connection(address, WAIT_S))
            await until(lambda: server.connections.refused.counts == {"connections": 17})
            await until(lambda: server.connections.count == 3)


async def test_a_body_that_is_told_to_be_longer_than_any_is_not_read_after_the_answer() -> None:
    async with serving(body_bytes_max=2_000) as (server, port), connected(port) as client:
        client.send(b"GET /x HTTP/1.1\r\nContent-Length: 20000\r\n\r\n")
        client.send(b"y" * 3_000)
        await client.answer()
        await client.ends()
        assert server.connections.refused.counts == {"body": 1}


async def test_an_answer_that_nobody_takes_is_given_up() -> None:
    async with serving(request_s_max=0.2) as (server, port), connected(port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: server.connections.refused.counts == {"not_read": 1})
        await until(lambda: server.connections.count == 0)


async def test_a_flood_of_refusals_does_not_fill_the_log() -> None:
    async with serving() as (server, port):
        with structlog.testing.capture_logs() as lines:
            for _ in range(20):
                async with connected(port) as client:
                    client.send(b"no HTTP\r\n\r\n")
                    await client.ends()
        assert server.connections.refused.counts == {"malformed": 20}
        refused = [line for line in lines if line["event"] == "http.refused"]
        assert 1 <= len(refused) < 20
        assert refused[0]["count"] == 1


async def test_what_is_no_http_is_told_so() -> None:
    async with serving() as (_, port):
        for sent in (b"\x00\x00\x00\x04hello\r\n\r\n", "GET /ä HTTP/1.1\r\n\r\n".encode()):
            async with connected(port) as client:
                client.send(sent)
                assert (await client.reader.readline()).startswith(b"HTTP/1.1 400 ")
