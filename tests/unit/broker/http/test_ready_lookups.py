"""A look-up of which all is known is answered without the application, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import Receive, Scope, Send

from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.http.lookups import ReadyLookups
from anabranch.broker.http.server import HttpServer, bind
from anabranch.core.names import parse_topic
from anabranch.wire import clock
from support.binary import one_node
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryNode
from support.raw_http import connected
from support.secured import bearer, secured_node, tokens_alone

LOOKUPS = "/lookup/v2/topic/persistent/public/default"
GET = f"GET {LOOKUPS}/orders HTTP/1.1\r\nHost: n\r\n".encode()
ALLOWED = "https://console.example.com"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for the node's: it shows which requests come to it."""
    body = b'{"reason": "it came here"}'
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 418, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(node: MemoryNode) -> AsyncIterator[tuple[HttpServer, int]]:
    """The node's look-ups before the application that stands for its own."""
    with bind("127.0.0.1", 0) as held:
        ready = ReadyLookups(node.operations, OriginRules(node.settings))
        server = HttpServer(application, held, node.settings.http_limits, ready)
        await server.start()
        try:
            yield server, held.getsockname()[1]
        finally:
            await server.stop()


async def owned(node: MemoryNode) -> None:
    """An owner of what is looked up in these tests."""
    await node.operations.lookups.find(*parse_topic("persistent://public/default/orders"))


async def test_what_has_to_wait_or_be_refused_is_the_application_s() -> None:
    async with (
        one_node() as node,
        serving(node) as (_, port),
        connected(port) as client,
    ):
        assert await client.ask(GET + b"\r\n") == 418  # nobody owns it yet
        await owned(node)
        assert await client.ask(GET + b"\r\n") == 200
        assert await client.ask(GET + b"Origin: https://evil.example\r\n\r\n") == 418
        for path in ("/orders/bundle", "", "/..", "/" + "x" * 1_100):
            asked = f"GET {LOOKUPS}{path} HTTP/1.1\r\nHost: n\r\n\r\n".encode()
            assert await client.ask(asked) == 418, path
        assert await client.ask(GET.replace(b"GET", b"PUT", 1) + b"\r\n") == 418
        assert await client.ask(GET + b"\r\n") == 200


async def test_one_that_is_answered_before_its_body_came_waits_for_the_next_as_others_do() -> None:
    """With two connections at most, the third has whoever waits longest go."""

    async with (
        one_node(maxHttpServerConnections=2) as node,
        serving(node) as (server, port),
        connected(port) as first,
        connected(port) as second,
    ):
        await owned(node)
        with_body = GET + b"Content-Length: 4\r\n\r\n"
        assert await first.ask(with_body, b"body") == 200
        assert await second.ask(GET + b"\r\n") == 200
        assert await first.ask(with_body + b"bo") == 200
        first.writer.write(b"dy")
        assert await first.ask(GET + b"\r\n", GET + b"\r\n") == 200
        assert (await first.answer())[0] == 200
        async with connected(port) as third:
            assert (await second.answer())[0] == 503
            assert await third.ask(GET + b"\r\n") == 200
            assert await first.ask(GET + b"\r\n") == 200
        assert server.connections.refused.counts == {"connections": 1}


async def test_each_look_up_takes_one_turn_of_its_role_whoever_answers_it(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path, maxRequestsPerSecondPerPrincipal=5)) as node:
        shown = bearer("ada")
        asked = [f"{LOOKUPS}/orders-{number % 3}" for number in range(60)]
        began = clock.now()
        found = [(await node.ask("GET", path, shown)).status_code for path in asked]
        turns = 5 * (1 + clock.now() - began)  # so many have come by now, however long it took
        assert found[:5] == [200] * 5
        assert found.count(200) <= turns


@on_nodes(webServiceAllowedOrigins=ALLOWED)
async def test_answers_are_those_of_the_application(node: HttpNode) -> None:
    http, path = node.http, f"{LOOKUPS}/orders"
    waited = await http.get(path)  # nobody owned it
    ready = await http.get(path)
    assert (ready.status_code, ready.json()) == (200, waited.json())
    assert dict(ready.headers) == dict(waited.headers)
    shown = await http.get(path, headers={"Origin": ALLOWED})
    assert shown.headers["access-control-allow-origin"] == ALLOWED
