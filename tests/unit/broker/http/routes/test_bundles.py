from typing import Any

import pytest

from anabranch.core.ring import topic_hash
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster

HOME = "/admin/v2/namespaces/public/default"
UNIT = "0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT
HALVES = ["0x00000000_0x20000000", "0x20000000_0x40000000"]


async def look_up(node: HttpNode) -> None:
    path = TOPIC.replace("://", "/")
    assert (await node.http.get(f"/lookup/v2/topic/{path}")).status_code == 200


async def bundles(node: HttpNode) -> dict[str, Any]:
    answer = await node.http.get(f"{HOME}/bundles/ownership")
    return {bundle["bundle"]: bundle for bundle in answer.json()["bundles"]}


async def put(node: HttpNode, path: str, status: int, body: Any = None) -> str:
    answer = await node.http.put(f"{HOME}/{path}", json=body)
    assert answer.status_code == status, answer.text
    return str(answer.json()["reason"]) if answer.content else ""


def test_the_listing_says_who_owns_what() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        before = await bundles(node)
        assert [bundle["state"] for bundle in before.values()] == ["FREE"] * 4
        await look_up(node)
        after = await bundles(node)
        assert (after[UNIT]["state"], after[UNIT]["broker"]) == ("OWNED", node.id)
        assert after[UNIT]["version"] > before[UNIT]["version"]
        owned = await node.http.get(f"/admin/v2/brokers/standalone/{node.id}/ownedNamespaces")
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        assert owned.json() == {f"public/default/{UNIT}": status}

    with_http(test)


def test_an_unloaded_bundle_is_free_and_so_is_one_that_was() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        await look_up(node)
        await put(node, f"{UNIT}/unload", 204)
        assert (await bundles(node))[UNIT]["state"] == "FREE"
        await put(node, f"{UNIT}/unload", 204)
        await look_up(node)
        await put(node, "unload", 204)
        assert {bundle["state"] for bundle in (await bundles(node)).values()} == {"FREE"}

    with_http(test)


@pytest.mark.parametrize("scheme", ["", "http://", "https://"])
def test_an_unload_with_a_destination_transfers(scheme: str) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        await look_up(nodes[0])
        owner = (await bundles(nodes[0]))[UNIT]["broker"]
        target = next(node for node in nodes if node.id != owner)
        await put(nodes[0], f"{UNIT}/unload?destinationBroker={scheme}{target.id}", 204)
        found = (await bundles(nodes[0]))[UNIT]
        assert (found["state"], found["broker"]) == ("OWNED", target.id)

    with_http(test, count=2)


def test_a_split_leaves_the_halves() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        await look_up(node)
        await put(node, f"{UNIT}/split", 204)
        after = await bundles(node)
        assert list(after)[:2] == HALVES
        assert [after[half]["state"] for half in HALVES] == ["OWNED", "OWNED"]
        await put(
            node, f"{HALVES[0]}/split?unload=true&splitAlgorithmName=range_equally_divide", 204
        )
        assert {bundle["state"] for bundle in list((await bundles(node)).values())[:2]} == {"FREE"}

    with_http(test)


def test_a_split_at_positions_cuts_there() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        path = f"{UNIT}/split?splitAlgorithmName=specified_positions_divide"
        await put(node, path, 204, [0x30000000, 0x10000000])
        answer = (await node.http.get(f"{HOME}/bundles")).json()
        edges = ["0x00000000", "0x10000000", "0x30000000", "0x40000000"]
        assert answer["boundaries"][:4] == edges

    with_http(test)


BAD_REQUESTS: list[tuple[str, Any, int, str]] = [
    ("0x1_0x2/unload", None, 412, "8 lower-case hex digits"),
    ("0x40000000_0x00000000/unload", None, 412, "is empty"),
    ("zero/unload", None, 412, "'zero'"),
    ("zero/split", None, 412, "'zero'"),
    ("0x00000000_0x00000001/unload", None, 412, "Cannot find bundle"),
    (f"{UNIT}/unload?destinationBroker=nobody:1", None, 409, "nobody:1 is not one of"),
    (f"{UNIT}/unload?destinationBroker=nobody", None, 412, "host:webPort"),
    (f"{UNIT}/split?unload=perhaps", None, 400, "query parameter 'unload'"),
    (f"{UNIT}/split", {"at": 1}, 400, "the body"),
    (f"{UNIT}/split", [1], 412, "positions are for specified_positions_divide"),
    ("LARGEST/split", None, 404, "LARGEST not found"),
    ("HOT/split", None, 404, "HOT not found"),
    ("0x00000000_0x00000001/split", None, 412, "Cannot find bundle"),
    (
        f"{UNIT}/split?splitAlgorithmName=by_guess",
        None,
        412,
        "topic_count_equally_divide, specified_positions_divide, flow_or_qps_equally_divide]",
    ),
    (
        f"{UNIT}/split?splitAlgorithmName=specified_positions_divide",
        None,
        412,
        "splitBoundaries must not be empty",
    ),
    (
        f"{UNIT}/split?splitAlgorithmName=specified_positions_divide",
        [0x40000000],
        412,
        "strictly inside",
    ),
    (f"{UNIT}/split?splitAlgorithmName=specified_positions_divide", [-1], 412, "outside the ring"),
    (f"{UNIT}/split?splitAlgorithmName=specified_positions_divide", ["1"], 400, "integer"),
]


def test_what_cannot_be_done_to_a_bundle_is_refused() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        before = await bundles(nodes[0])
        for path, body, status, named in BAD_REQUESTS:
            assert named in await put(nodes[0], path, status, body), path
        assert list(await bundles(nodes[0])) == list(before)

    with_http(test)


def test_a_bundle_of_one_hash_cannot_be_split() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        path = f"{UNIT}/split?splitAlgorithmName=specified_positions_divide"
        await put(node, path, 204, [1])
        assert "single hash" in await put(node, "0x00000000_0x00000001/split", 412)

    with_http(test)


def test_a_bundle_is_not_given_to_a_broker_that_drains() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await look_up(nodes[0])
        owner = (await bundles(nodes[0]))[UNIT]["broker"]
        stays = next(node for node in nodes if node.id == owner)
        leaves = next(node for node in nodes if node.id != owner)
        leaves.node.runtime.drain()
        await leaves.node.runtime.ended
        reason = await put(stays, f"{UNIT}/unload?destinationBroker={leaves.id}", 409)
        assert leaves.id in reason

    with_http(test, count=2)


def test_hash_positions_are_those_of_the_topics_in_the_bundle() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        path = f"{HOME}/{UNIT}/topicHashPositions"
        unowned = await node.http.get(path)
        assert (unowned.status_code, "ownership" in unowned.json()["reason"]) == (412, True)
        await look_up(node)
        topics = ["topic-1", TOPIC, "topic-2", "topic-3"]
        answer = (await node.http.get(path, params={"topics": topics})).json()
        assert (answer["namespace"], answer["bundle"]) == ("public/default", UNIT)
        assert answer["topicHashPositions"][TOPIC] == topic_hash(TOPIC)
        assert all(position < 0x40000000 for position in answer["topicHashPositions"].values())
        stranger = await node.http.get(path, params={"topics": "persistent://public/other/t"})
        assert stranger.status_code == 412
        unknown = await node.http.get(f"{HOME}/0x00000000_0x00000001/topicHashPositions")
        assert (unknown.status_code, "Cannot find" in unknown.json()["reason"]) == (412, True)

    with_http(test)


@pytest.mark.parametrize("path", ["tenants/a%20b", "namespaces/a%20b/orders"])
def test_names_are_checked_where_they_come_in(path: str) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        for method in ("PUT", "DELETE"):
            answer = await nodes[0].http.request(
                method, f"/admin/v2/{path}", json={"allowedClusters": ["standalone"]}
            )
            assert answer.status_code == 412
            assert "tenant name 'a b' is not valid" in answer.json()["reason"]

    with_http(test)
