"""Look-ups, and layouts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.broker.http.lookups import LOOKUP_PREFIX
from anabranch.core.ring import parse_range, topic_hash
from support.http import HttpNode, on_nodes
from support.memory_cluster import WAIT_S, until
from support.scalable import refused

PATH = f"{LOOKUP_PREFIX}persistent/public/default/orders"
LAYOUTS = "/admin/v2/scalable/public/default"
ORDERS = f"{LAYOUTS}/orders"


async def owner_of(node: HttpNode, path: str = PATH) -> str:
    answer = await node.http.get(path)
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["httpUrl"]
    return found


@on_nodes()
async def test_look_ups_are_answered_one_by_one_to_the_last(node: HttpNode) -> None:
    known = await node.http.get(PATH)
    for last in ("HTTP/1.1\r\nConnection: close", "HTTP/1.0"):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.http.base_url.port)
        asked = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        end = f"GET {PATH} {last}\r\nHost: 127.0.0.1\r\n\r\n"
        writer.write((asked * 3 + end).encode())
        told = (await asyncio.wait_for(reader.read(), WAIT_S)).decode()  # to the end
        assert told.count("HTTP/1.1 200 OK") == told.count(known.text) == 3 + 1
        assert told.count("connection: close") == 1
        writer.close()


@on_nodes()
async def test_the_bundle_of_a_topic_is_the_range_that_its_hash_is_in(node: HttpNode) -> None:
    answer = await node.http.get(f"{PATH}/bundle")
    assert answer.headers["content-type"].startswith("text/plain")  # as Pulsar's client reads it
    assert topic_hash("persistent://public/default/orders") in parse_range(answer.text)
    named = await node.http.get(f"{LOOKUP_PREFIX}persistent/public/default/a%2Fb%20%C3%A4/bundle")
    assert topic_hash("persistent://public/default/a/b ä") in parse_range(named.text)


@on_nodes()
async def test_a_lookup_of_nothing_there_is_refused_with_its_reason(node: HttpNode) -> None:
    for path, status, named in (
        ("persistent/public/nothing/t", 404, "public/nothing"),
        ("resistant/public/default/t", 412, "domain 'resistant'"),
        ("persistent/pub%20lic/default/t", 412, "tenant name 'pub lic'"),
        ("persistent/public/default", 404, "there is no path"),
        ("persistent//default/t", 404, "there is no path"),
        ("persistent/public/default/", 412, "topic name"),
        ("persistent/public/default/" + "x" * 1100, 412, "topic name"),
    ):
        refused(await node.http.get(LOOKUP_PREFIX + path), status, named)


@on_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000)
async def test_a_node_without_its_lease_marks_what_it_knows_stale(node: HttpNode) -> None:
    owner = await owner_of(node)
    assert "x-anabranch-stale" not in (await node.http.get(PATH)).headers
    assert (await node.http.put(ORDERS)).status_code == 204
    layout = await node.http.get(ORDERS)
    bundles = await node.http.get("/admin/v2/namespaces/public/default/bundles")
    assert "x-anabranch-stale" not in layout.headers
    node.node.connected = False
    await until(lambda: not node.node.runtime.has_lease)
    answer = await node.http.get(PATH)
    assert (answer.status_code, answer.json()["httpUrl"]) == (200, owner)
    assert answer.headers["x-anabranch-stale"] == "true"
    for known, path in (
        (layout, ORDERS),
        (bundles, "/admin/v2/namespaces/public/default/bundles"),
    ):
        told = await node.http.get(path)
        assert (told.json(), told.headers["x-anabranch-stale"]) == (known.json(), "true")
    unknown = await node.http.get(f"{LOOKUP_PREFIX}persistent/public/default/topic-1")
    if unknown.status_code != 200:  # a bundle that nobody owns needs the log
        assert unknown.status_code == 503
        assert "safe mode" in unknown.json()["reason"]
        assert unknown.headers["retry-after"] == "1"


@on_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000)
async def test_what_was_found_without_the_lease_is_marked_though_the_lease_is_back(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = node.node.operations

    async def found_late(ask: Callable[[], Awaitable[Any]]) -> Any:
        found = await ask()
        node.node.connected = True
        await until(lambda: node.node.runtime.has_lease)
        return found

    node.node.connected = False
    await until(lambda: not node.node.runtime.has_lease)
    monkeypatch.setattr(operations, "decided", found_late)
    told = await node.http.get("/admin/v2/namespaces/public/default/bundles")
    assert (told.status_code, told.headers["x-anabranch-stale"]) == (200, "true")


# --- layouts -------------------------------------------------------------------------------


@on_nodes()
async def test_what_is_no_layout_is_refused_with_its_reason(node: HttpNode) -> None:
    await node.http.put(ORDERS)
    for path, status, said in (
        (f"{LAYOUTS}/nothing", 404, "Scalable topic not found: topic://public/default/nothing"),
        (f"{LAYOUTS}/bad%20name", 412, "bad name"),
        ("/admin/v2/scalable/public/nothing/orders", 404, "Namespace public/nothing"),
        (f"{LAYOUTS}/orders%2Fnothing", 404, "there is no path"),
        (f"{LAYOUTS}/", 404, "there is no path"),
    ):
        refused(await node.http.get(path), status, said)


@on_nodes()
async def test_paths_below_and_above_a_layout_are_other_routes(node: HttpNode) -> None:
    await node.http.put(ORDERS)
    for path in (f"{ORDERS}/stats", f"{LAYOUTS}/orders%2Fstats"):
        assert "totalSegments" in (await node.http.get(path)).json()
    assert (await node.http.get(LAYOUTS)).json() == ["topic://public/default/orders"]


@on_nodes()
async def test_every_answer_is_of_the_layout_of_its_time(nodes: list[HttpNode]) -> None:
    node = nodes[0].http
    seen = []
    for change in (
        node.put(ORDERS),
        node.post(f"{ORDERS}/split/0"),
        node.post(f"{ORDERS}/merge/1/2"),
        node.delete(ORDERS),
        node.put(ORDERS, params={"numInitialSegments": 5}),
    ):
        assert (await change).status_code == 204
        answer = await node.get(ORDERS)
        seen.append(sorted(answer.json().get("segments", ())))
    assert seen == [["0"], ["0", "1", "2"], ["0", "1", "2", "3"], [], ["0", "1", "2", "3", "4"]]
