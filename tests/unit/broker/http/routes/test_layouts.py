"""Reads of layouts, which are answered in front of the application."""

from __future__ import annotations

import pytest

from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.scalable import refused

HOME = "/admin/v2/scalable/public/default"
TOPIC = f"{HOME}/orders"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        (f"{HOME}/nothing", 404, "Scalable topic not found: topic://public/default/nothing"),
        (f"{HOME}/bad%20name", 412, "bad name"),
        ("/admin/v2/scalable/public/nothing/orders", 404, "Namespace public/nothing"),
        (f"{HOME}/orders%2Fnothing", 404, "there is no path"),
        (f"{HOME}/", 404, "there is no path"),
    ],
)
def test_what_is_no_layout_is_refused_with_its_reason(path: str, status: int, said: str) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        await nodes[0].http.put(TOPIC)
        refused(await nodes[0].http.get(path), status, said)

    with_http(test)


def test_paths_below_and_above_a_layout_are_other_routes() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        await nodes[0].http.put(TOPIC)
        for path in (f"{TOPIC}/stats", f"{HOME}/orders%2Fstats"):
            assert "totalSegments" in (await nodes[0].http.get(path)).json()
        assert (await nodes[0].http.get(HOME)).json() == ["topic://public/default/orders"]

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
