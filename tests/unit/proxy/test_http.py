"""HTTP through a proxy: look-ups, administration, redirects, and nodes that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from anabranch.proxy import nodes as nodes_of_proxy
from support.memory_cluster import until
from support.proxied import HOST, before_nodes, proxied, running_proxy

LOOKUP = "/lookup/v2/topic/persistent/public/default/t"


async def test_look_ups_and_administration_give_the_proxy_s_addresses() -> None:
    async with proxied() as (proxy, nodes):
        for number in range(10):
            told = (await proxy.http.get(f"{LOOKUP}{number}")).json()
            assert told["brokerUrl"] == told["nativeUrl"] == proxy.service_url
            assert told["httpUrl"] == proxy.web_url
        leader = (await proxy.http.get("/admin/v2/brokers/leaderBroker")).json()
        assert leader["serviceUrl"] == proxy.web_url
        assert leader["brokerId"] in {each.web for each in nodes}
        status = (await proxy.http.get("/admin/v2/brokers/status")).json()
        assert status["serviceUrl"] == proxy.service_url


async def test_what_only_the_owner_does_is_done_whichever_node_is_asked_first() -> None:
    async with proxied() as (proxy, _):
        for number in range(3):
            path = f"/admin/v2/scalable/public/default/t{number}"
            made = await proxy.http.put(path, params={"numInitialSegments": 2}, json={"a": "b"})
            assert made.status_code == 204, made.text
            layout = (await proxy.http.get(path)).json()
            assert (len(layout["segments"]), layout["properties"]) == (2, {"a": "b"})
            split = await proxy.http.post(f"{path}/split/0")
            assert split.status_code == 204, split.text
        refused = await proxy.http.post("/admin/v2/scalable/public/default/none/split/0")
        assert refused.status_code == 404
        assert "none" in refused.json()["reason"]


async def test_the_proxy_s_own_paths_are_its_own() -> None:
    async with proxied() as (proxy, _):
        assert (await proxy.http.get("/livez")).text == "ok"
        assert (await proxy.http.get("/readyz")).text == "ok"
        assert (await proxy.http.post("/livez")).status_code == 405
        page = (await proxy.http.get("/metrics")).text
        assert "pulsar_proxy_active_connections" in page
        assert 'pulsar_proxy_topic_list_heap_memory_used_bytes{cluster="standalone"} 0.0' in page
        assert "pulsar_broker_" not in page
        assert (await proxy.http.get("/admin/v2/brokers/health")).text.startswith("ok")
        assert (await proxy.http.head("/livez")).status_code == 200
        for path in ("/livez", "/admin/v2/tenants", f"{LOOKUP}1"):
            said = (await proxy.http.get(path)).headers.get_list("x-content-type-options")
            assert said == ["nosniff"], path


async def test_a_node_that_dies_is_left_and_its_bundles_are_found_elsewhere() -> None:
    async with proxied() as (proxy, nodes):
        await proxy.http.get(f"{LOOKUP}1")
        await nodes[0].die()
        for number in range(10):
            told = await proxy.http.get(f"/admin/v2/brokers/status?{number}")
            assert told.status_code == 200
            assert told.json()["brokerId"] == nodes[1].web
        await nodes[1].die()
        refused = await proxy.http.get("/admin/v2/brokers/status")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert nodes[1].web in refused.json()["reason"]


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(handle: Handle) -> AsyncIterator[str]:
    """A node that says what a test wants; host:port."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, HOST, 0)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is silent is given up soon; one that is well has a moment on a busy machine."""
    monkeypatch.setattr(nodes_of_proxy, "ANSWER_S_MAX", 5.0)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def answers(text: bytes) -> Handle:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head_of(reader)
            writer.write(text)
            await writer.drain()

    return handle


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def test_a_node_hears_for_whom_it_is_asked_and_nothing_of_the_hop_before() -> None:
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await head_of(reader))
            writer.write(OK)

    async with scripted(handle) as node, running_proxy(before_nodes(node)) as proxy:
        heads.clear()
        await proxy.http.get(
            "/x%2Fy?a=%20b",
            headers={
                "X-Forwarded-For": "9.9.9.9",
                "Connection": "keep-alive, X-Hop",
                "X-Hop": "1",
                "TE": "trailers",
                "X-Mine": "kept",
            },
        )
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "GET /x%2Fy?a=%20b HTTP/1.1"
    said = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    assert (said["host"], said["x-forwarded-for"]) == (node, f"9.9.9.9, {HOST}")
    assert said["x-mine"] == "kept"
    assert not said.keys() & {"connection", "te", "x-hop", "transfer-encoding"}


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        (b"not http at all\r\n\r\n", 502, "was lost: "),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", 502, "was lost: "),
        (b"HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n", 503, ""),
    ],
)
async def test_what_a_node_must_not_answer_is_an_error(text: bytes, status: int, why: str) -> None:
    async with scripted(answers(text)) as node, running_proxy(before_nodes(node)) as proxy:
        answer = await proxy.http.post("/admin/v2/x", content=b"{}")
        assert answer.status_code == status, answer.text
        assert why in answer.json()["reason"]


@pytest.mark.parametrize(("hops", "status"), [(5, 200), (6, 503)])
async def test_the_answer_after_the_last_redirect_that_is_followed_counts(
    hops: int, status: int
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            at = (await head_of(reader)).split()[1].decode()
            if at != "/admin/v2/x":
                writer.write(OK)
                continue
            asked.append(at)
            there = f"location: http://{node}{at}\r\ncontent-length: 0\r\n\r\n"
            writer.write(OK if len(asked) > hops else f"HTTP/1.1 307 T\r\n{there}".encode())

    asked: list[str] = []
    async with scripted(handle) as node, running_proxy(before_nodes(node)) as proxy:
        assert (await proxy.http.get("/admin/v2/x")).status_code == status
        assert len(asked) == 6


async def test_a_node_that_is_silent_is_given_up_in_time_and_says_that_it_may_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes_of_proxy, "ANSWER_S_MAX", 0.5)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with scripted(silent) as node, running_proxy(before_nodes(node)) as running:
        answer = await running.http.put("/admin/v2/tenants/t", json={})
        assert answer.status_code == 504
        assert node in answer.json()["reason"]
        assert "look before you ask again" in answer.json()["reason"]


async def test_what_changes_something_is_not_asked_twice_and_reads_are() -> None:
    asked: list[bytes] = []

    async def lost(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await head_of(reader)).split(b" ")[0])

    async with (
        scripted(lost) as bad,
        scripted(answers(OK)) as good,
        running_proxy(before_nodes(bad, good)) as proxy,
    ):
        asked.clear()
        assert {(await proxy.http.get("/admin/v2/x")).status_code for _ in range(6)} == {200}
        before = asked.count(b"POST")
        codes = [(await proxy.http.post("/admin/v2/x")).status_code for _ in range(6)]
        assert set(codes) <= {200, 502}
        assert codes.count(502) == asked.count(b"POST") - before


async def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1_000)

    async with scripted(broken) as node, running_proxy(before_nodes(node)) as proxy:
        with pytest.raises(httpx.RemoteProtocolError):
            await proxy.http.get("/admin/v2/long")


async def test_a_long_answer_waits_at_its_node_for_a_client_that_does_not_read() -> None:
    sent = 0
    total = 64 << 20

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        head = await head_of(reader)
        if b"/long" not in head:
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    async with scripted(endless) as node, running_proxy(before_nodes(node)) as proxy:
        reader, writer = await asyncio.open_connection(HOST, proxy.settings.web_service_port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: sent > 0)
        for _ in range(300):  # turns, in which all of it could have come
            assert (await proxy.http.get("/livez")).status_code == 200
        assert sent < total // 2
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        await head_of(reader)
        assert len(await reader.readexactly(total)) == total
        writer.close()


async def test_huge_heads_and_bodies_are_refused_before_a_node_is_asked() -> None:
    async with scripted(answers(OK)) as node, running_proxy(before_nodes(node)) as proxy:
        assert (await proxy.http.get("/admin/v2/x", headers={"x": "y" * 20_000})).status_code == 431
        assert (await proxy.http.post("/admin/v2/x", content=b"x" * (2 << 20))).status_code == 413
        assert (await proxy.http.get("/admin/v2/x")).status_code == 200


async def test_pages_of_other_sites_may_not_ask_and_the_proxy_s_own_may() -> None:
    async with scripted(answers(OK)) as node, running_proxy(before_nodes(node)) as proxy:
        for origin, status in (("http://evil.example", 403), (proxy.web_url, 200)):
            told = {"Origin": origin, "User-Agent": "Mozilla/5.0"}
            answer = await proxy.http.post("/admin/v2/x", headers=told)
            assert answer.status_code == status


async def test_a_client_that_goes_leaves_no_request_at_its_node() -> None:
    held: list[asyncio.StreamReader] = []

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/long" not in await head_of(reader):
            return
        held.append(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with scripted(endless) as node, running_proxy(before_nodes(node)) as proxy:
        _, writer = await asyncio.open_connection(HOST, proxy.settings.web_service_port)
        writer.write(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: bool(held))
        writer.transport.abort()
        await until(lambda: held[0].at_eof() or held[0].exception() is not None)
