"""Scalable topics through HTTP: paths, bodies and status codes, and what is left after trouble."""

from __future__ import annotations

import msgspec

from anabranch.broker.http.routes.topic_stats import segment_of
from anabranch.core.entities.layout import SegmentLayout
from support.http import HttpNode, on_nodes
from support.memory_cluster import until
from support.scalable import HOME, TOPIC, created, layout, refused


@on_nodes()
async def test_a_new_topic_has_the_layout_of_the_seed(node: HttpNode) -> None:
    answer = await node.http.put(TOPIC, params={"numInitialSegments": 2}, json={"team": "blue"})
    assert (answer.status_code, answer.content) == (204, b"")
    body = await layout(node)
    assert set(body) == {"epoch", "nextSegmentId", "segments", "properties"}
    assert (body["epoch"], body["nextSegmentId"]) == (0, 2)
    assert body["properties"] == {"team": "blue"}
    segment = body["segments"]["1"]
    assert segment.pop("createdAtMs") > 0
    assert segment == {
        "segmentId": 1,
        "hashRange": {"start": 32768, "end": 65535},
        "state": "ACTIVE",
        "parentIds": [],
        "childIds": [],
        "createdAtEpoch": 0,
        "sealedAtEpoch": 0,
        "sealedAtMs": -1,
        "entryBucketSplits": [32768],
        "endOffsets": [],
        "sealed": False,
        "active": True,
        "root": True,
        "leaf": True,
        "legacy": False,
    }
    assert sorted(node.cluster.segments.partitions.values()) == [2, 2]


@on_nodes()
async def test_every_bad_request_has_its_own_status_and_reason(node: HttpNode) -> None:
    http = node.http
    refused(await http.get(TOPIC), 404, "topic://public/default/orders")
    refused(await http.delete(TOPIC), 404, "topic://public/default/orders")
    refused(await http.post(f"{TOPIC}/split/0"), 404, "topic://public/default/orders")
    refused(await http.put(f"{HOME}/bad%20name"), 412, "bad name")
    refused(await http.put("/admin/v2/scalable/public/none/orders"), 404, "public/none")
    for count in (0, -1, 65_537):
        answer = await http.put(TOPIC, params={"numInitialSegments": count})
        refused(answer, 412, "numInitialSegments must be >= 1")
    refused(await http.put(TOPIC, json={"a": 1}), 400, "body")
    await created(node, 4)
    refused(await http.delete("/admin/v2/namespaces/public/default"), 409, "non empty namespace")
    refused(await http.put(TOPIC), 409, "Scalable topic already exists: topic://public/def")
    refused(await http.post(f"{TOPIC}/merge/0/99"), 404, "Segment not found: 99")
    refused(await http.post(f"{TOPIC}/merge/0/2"), 412, "Segments are not adjacent")
    refused(await http.post(f"{TOPIC}/merge/1/1"), 412, "Segments are not adjacent")
    refused(await http.post(f"{TOPIC}/split/x"), 404, "segmentId")
    assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
    refused(await http.post(f"{TOPIC}/split/0"), 412, "Cannot split non-active segment: 0")
    refused(await http.post(f"{TOPIC}/merge/0/1"), 412, "Both segments must be active")
    refused(await http.post(f"{TOPIC}/rebucket/1", params={"bucketCount": 0}), 412, "bucket")
    refused(await http.post(f"{TOPIC}/rebucket/1", params={"bucketCount": 1025}), 412, "1024")
    refused(await http.post(f"{TOPIC}/rebucket/1", params={"bucketCount": 1}), 412, "already")


@on_nodes()
async def test_who_names_a_segment_that_is_not_active_is_told_which(node: HttpNode) -> None:
    http = node.http
    await created(node, 3)
    assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
    for answer in (
        await http.post(f"{TOPIC}/split/99"),
        await http.get(f"{TOPIC}/segments/99/stats"),
        await http.post(f"{TOPIC}/rebucket/99", params={"bucketCount": 8}),
    ):
        refused(answer, 404, "Segment not found: 99; the active segments are 3, 4, 1, 2")
    refused(await http.post(f"{TOPIC}/split/0"), 412, "0; the active segments are 3, 4, 1, 2")
    refused(await http.post(f"{TOPIC}/merge/3/2"), 412, "the active segments are 3, 4, 1, 2")
    await http.delete(TOPIC)
    await created(node, 14)
    few = "the active segments are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more"
    refused(await http.post(f"{TOPIC}/split/99"), 404, few)


@on_nodes()
async def test_topics_are_listed_by_their_properties(node: HttpNode) -> None:
    http = node.http
    for name, properties in (("a", {"x": "1", "y": "2"}), ("b", {"x": "1"}), ("c", {})):
        assert (await http.put(f"{HOME}/{name}", json=properties)).status_code == 204

    async def listed(*filters: str) -> list[str]:
        answer = await http.get(HOME, params={"property": list(filters)})
        assert answer.status_code == 200
        found: list[str] = answer.json()
        return [each.removeprefix("topic://public/default/") for each in found]

    assert await listed() == ["a", "b", "c"]
    assert await listed("x=1") == ["a", "b"]
    assert await listed("x=1", "y=2") == ["a"]
    assert await listed("y=3") == []
    refused(await http.get(HOME, params={"property": "x"}), 412, "key=value, got: x")
    both = {"property": ["team=a", "team=b"]}
    refused(await http.get(HOME, params=both), 412, "'team' is to be 'a' and 'b'")
    refused(
        await http.get("/admin/v2/scalable/public/none"),
        404,
        "Namespace public/none does not exist",
    )


@on_nodes(3)
async def test_changes_reach_the_controller_and_all_serve_reads(nodes: list[HttpNode]) -> None:
    made = [await node.http.put(TOPIC) for node in nodes]
    assert sorted(each.status_code for each in made) == [204, 307, 307]
    controller = next(n for n, each in zip(nodes, made, strict=True) if each.status_code == 204)
    others = [node for node in nodes if node is not controller]
    for verb, path in (
        ("POST", f"{TOPIC}/split/0?x=1"),
        ("GET", f"{TOPIC}/stats"),
        ("GET", f"{TOPIC}/segments/0/stats"),
        ("GET", f"{TOPIC}/autoScalePolicy"),
        ("PUT", f"{TOPIC}/properties"),
        ("POST", f"{TOPIC}/subscriptions/billing/skip-all"),
        ("POST", f"{TOPIC}/subscriptions/billing/seek?timestamp=5"),
    ):
        for node in others:
            answer = await node.http.request(verb, path, json={} if verb == "PUT" else None)
            assert answer.status_code == 307, (path, answer.text)
            assert answer.headers["location"] == f"http://{controller.id}{path}"
    assert (await controller.http.post(f"{TOPIC}/split/0")).status_code == 204
    epoch = (await layout(controller))["epoch"]
    await until(lambda: all(epoch_at(node) == epoch for node in nodes))
    for node in nodes:
        assert await layout(node) == await layout(controller)


def epoch_at(node: HttpNode) -> int:
    topic = node.node.view.topic("public/default/orders")
    return -1 if topic is None else topic.epoch


@on_nodes()
async def test_subscriptions_come_and_go_and_are_counted(node: HttpNode) -> None:
    http = node.http
    refused(await http.put(f"{TOPIC}/subscriptions/a"), 404, "not found")
    await created(node)
    assert (await http.put(f"{TOPIC}/subscriptions/stream")).status_code == 204
    for kind in ("QUEUE", "STREAM"):  # the second one changes nothing
        answer = await http.put(f"{TOPIC}/subscriptions/queue", params={"type": kind})
        assert answer.status_code == 204
    refused(await http.put(f"{TOPIC}/subscriptions/a", params={"type": "x"}), 404, "type")
    refused(await http.put(f"{TOPIC}/subscriptions/a%20b"), 412, "a b")
    found = (await http.get(f"{TOPIC}/stats")).json()["subscriptions"]
    assert {name: each["type"] for name, each in found.items()} == {
        "queue": "QUEUE",
        "stream": "STREAM",
    }
    assert node.cluster.segments.share_groups == {found["queue"]["groupId"]}
    assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
    assert (await http.delete(f"{TOPIC}/subscriptions/stream")).status_code == 204
    await until(lambda: node.cluster.segments.deleted_groups == {found["stream"]["groupId"]})
    refused(await http.delete(f"{TOPIC}/subscriptions/stream"), 404, "Subscription not found")


def test_a_layout_is_written_to_the_letter_of_pip_468() -> None:
    """Its names and order; what is added comes after them, and all of it is read again."""
    made = SegmentLayout.initial(1, bucket_budget=3)
    made = made.replaced((0,), made.split_children(0), {0: (5, 6, 7)}, 1234)
    written = [msgspec.to_builtins(segment_of(part)) for part in made.segments.values()]
    names = ["segmentId", "hashRange", "state", "parentIds", "childIds", "createdAtEpoch"]
    for part in written:
        assert list(part)[:7] == [*names, "sealedAtEpoch"]
    segments = {str(part["segmentId"]): part for part in written}
    read = {"epoch": made.epoch, "nextSegmentId": made.next_segment_id, "segments": segments}
    again = SegmentLayout.from_metadata(read)
    assert (again.epoch, [*again.active]) == (made.epoch, [*again.active])
    assert again.segments[0].end_offsets == (5, 6, 7)
