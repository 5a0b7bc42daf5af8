"""Reads of layouts, which are answered in front of the application."""

from __future__ import annotations

from support.http import HttpNode, on_nodes
from support.scalable import refused

HOME = "/admin/v2/scalable/public/default"
TOPIC = f"{HOME}/orders"


@on_nodes()
async def test_what_is_no_layout_is_refused_with_its_reason(node: HttpNode) -> None:
    await node.http.put(TOPIC)
    for path, status, said in (
        (f"{HOME}/nothing", 404, "Scalable topic not found: topic://public/default/nothing"),
        (f"{HOME}/bad%20name", 412, "bad name"),
        ("/admin/v2/scalable/public/nothing/orders", 404, "Namespace public/nothing"),
        (f"{HOME}/orders%2Fnothing", 404, "there is no path"),
        (f"{HOME}/", 404, "there is no path"),
    ):
        refused(await node.http.get(path), status, said)


@on_nodes()
async def test_paths_below_and_above_a_layout_are_other_routes(node: HttpNode) -> None:
    await node.http.put(TOPIC)
    for path in (f"{TOPIC}/stats", f"{HOME}/orders%2Fstats"):
        assert "totalSegments" in (await node.http.get(path)).json()
    assert (await node.http.get(HOME)).json() == ["topic://public/default/orders"]


@on_nodes()
async def test_every_answer_is_of_the_layout_of_its_time(nodes: list[HttpNode]) -> None:
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
