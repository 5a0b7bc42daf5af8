from __future__ import annotations

from typing import Any

from anabranch.core.ring import topic_hash
from support.http import HttpNode, on_nodes
from support.scalable import refused

HOME = "/admin/v2/namespaces/public/default"
UNIT = "0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


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


@on_nodes()
async def test_the_listing_says_who_owns_what(node: HttpNode) -> None:
    before = await bundles(node)
    assert [bundle["state"] for bundle in before.values()] == ["FREE"] * 4
    await look_up(node)
    after = await bundles(node)
    assert (after[UNIT]["state"], after[UNIT]["broker"]) == ("OWNED", node.id)
    assert after[UNIT]["version"] > before[UNIT]["version"]
    owned = await node.http.get(f"/admin/v2/brokers/standalone/{node.id}/ownedNamespaces")
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert owned.json() == {f"public/default/{UNIT}": status}


@on_nodes()
async def test_an_unloaded_bundle_is_free_and_so_is_one_that_was(node: HttpNode) -> None:
    await look_up(node)
    await put(node, f"{UNIT}/unload", 204)
    assert (await bundles(node))[UNIT]["state"] == "FREE"
    await put(node, f"{UNIT}/unload", 204)
    await look_up(node)
    await node.http.get("/lookup/v2/topic/persistent/public/default/t-9")
    await put(node, "unload", 204)
    assert {bundle["state"] for bundle in (await bundles(node)).values()} == {"FREE"}


@on_nodes(2)
async def test_an_unload_with_a_destination_transfers(nodes: list[HttpNode]) -> None:
    await look_up(nodes[0])
    for scheme in ("", "http://", "https://"):
        owner = (await bundles(nodes[0]))[UNIT]["broker"]
        target = next(node for node in nodes if node.id != owner)
        for _ in range(2):  # the second time it is there already
            await put(nodes[0], f"{UNIT}/unload?destinationBroker={scheme}{target.id}", 204)
            found = (await bundles(nodes[0]))[UNIT]
            assert (found["state"], found["broker"]) == ("OWNED", target.id)


@on_nodes()
async def test_what_cannot_be_done_to_a_bundle_is_refused(node: HttpNode) -> None:
    before = await bundles(node)
    for path, status, named in (
        ("0x40000000_0x00000000/unload", 412, "is empty"),
        ("zero/unload", 412, "'zero'"),
        ("0x00000000_0x00000001/unload", 412, "Cannot find bundle"),
        (f"{UNIT}/unload?destinationBroker=nobody:1", 409, "nobody:1 is not one of"),
        (f"{UNIT}/unload?destinationBroker=nobody", 412, "host:webPort"),
        (f"{UNIT}/split?unload=perhaps", 400, "query parameter 'unload'"),
    ):
        assert named in await put(node, path, status), path
    at_positions = f"{UNIT}/split?splitAlgorithmName=specified_positions_divide"
    for path, body, status, named in (
        (f"{UNIT}/split", {"at": 1}, 400, "the body"),
        (f"{UNIT}/split", [1], 412, "positions are for specified_positions_divide"),
        (at_positions, None, 412, "splitBoundaries must not be empty"),
        (at_positions, [0x40000000], 412, "strictly inside"),
        (at_positions, [-1], 412, "outside the ring"),
        (at_positions, ["1"], 400, "`int`"),
    ):
        assert named in await put(node, path, status, body), (path, body)
    for path in (f"{UNIT}/unload", f"{UNIT}/split", "unload"):
        gone = await node.http.put(f"{HOME}/{path}".replace("default", "none"))
        refused(gone, 404, "Namespace public/none does not exist")
    assert list(await bundles(node)) == list(before)


@on_nodes()
async def test_a_split_at_positions_cuts_there(node: HttpNode) -> None:
    path = f"{UNIT}/split?splitAlgorithmName=specified_positions_divide"
    await put(node, f"{path}&unload=true", 204, [0x30000000, 0x10000000, 1])
    parts = list((await bundles(node)).values())[:4]
    edges = ["0x00000000", "0x00000001", "0x10000000", "0x30000000"]
    assert [part["bundle"].partition("_")[0] for part in parts] == edges
    assert [part["state"] for part in parts] == ["FREE"] * 4
    assert "single hash" in await put(node, f"{parts[0]['bundle']}/split", 412)


@on_nodes()
async def test_hash_positions_are_those_of_the_topics_in_the_bundle(node: HttpNode) -> None:
    path = f"{HOME}/{UNIT}/topicHashPositions"
    refused(await node.http.get(path), 412, "ownership")
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
