"""The short way of reading layouts."""

from __future__ import annotations

import httpx
import pytest

from anabranch.broker.http.app import create_api
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until

HOME = "/admin/v2/scalable/public/default"
TOPIC = f"{HOME}/orders"


def route(node: HttpNode) -> httpx.AsyncClient:
    """A client of the routes alone."""
    api = create_api(node.node.operations, node.node.settings, node.node.metrics)
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://node")


@pytest.mark.parametrize(
    "path",
    [
        TOPIC,
        f"{HOME}/nothing",
        f"{HOME}/bad%20name",
        "/admin/v2/scalable/public/nothing/orders",
        f"{TOPIC}/stats",
        f"{HOME}/orders%2Fstats",
        HOME,
    ],
)
def test_the_short_way_and_the_route_answer_alike(path: str) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        await nodes[0].http.put(TOPIC, params={"numInitialSegments": 3}, json={"team": "blue"})
        async with route(nodes[0]) as routes:
            first, again = await nodes[0].http.get(path), await nodes[0].http.get(path)
            by_route = await routes.get(path)
        for one in (first, again):
            assert one.status_code == by_route.status_code
            if path.endswith("stats"):  # what is measured may change between two answers
                assert set(one.json()) == set(by_route.json())
            else:
                assert one.content == by_route.content
            assert one.headers["content-type"] == by_route.headers["content-type"]

    with_http(test)


def test_every_answer_is_of_the_layout_of_its_time() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0].http
        seen = []
        for change in (
            node.put(TOPIC),
            node.post(f"{TOPIC}/split/0"),
            node.post(f"{TOPIC}/merge/1/2"),
            node.delete(TOPIC),
            node.put(TOPIC, params={"numInitialSegments": 5}),
        ):
            assert (await change).status_code == 204
            answer = await node.get(TOPIC)
            seen.append(sorted(answer.json().get("segments", ())))
        assert seen == [["0"], ["0", "1", "2"], ["0", "1", "2", "3"], [], ["0", "1", "2", "3", "4"]]

    with_http(test)


def test_a_node_without_its_lease_marks_the_layout_stale() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        await node.http.put(TOPIC)
        fresh = await node.http.get(TOPIC)
        assert "x-anabranch-stale" not in fresh.headers
        node.node.connected = False
        await until(lambda: not node.node.runtime.has_lease)
        stale = await node.http.get(TOPIC)
        assert stale.headers["x-anabranch-stale"] == "true"
        assert stale.json() == fresh.json()

    with_http(test)
