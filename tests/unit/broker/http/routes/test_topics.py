"""Scalable topics through HTTP: paths, bodies and status codes, and what is left after trouble."""

from __future__ import annotations

import pytest

from anabranch.broker.http.models.topics import LayoutBody
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.scalable import HOME, TOPIC, created, layout, ranges, refused


def test_a_new_topic_has_the_layout_of_the_seed() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        answer = await nodes[0].http.put(
            TOPIC, params={"numInitialSegments": 2}, json={"team": "blue"}
        )
        assert (answer.status_code, answer.content) == (204, b"")
        body = await layout(nodes[0])
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
        assert sorted(cluster.segments.partitions.values()) == [2, 2]

    with_http(test)


def test_a_split_seals_the_parent_and_a_merge_joins_neighbours() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        (parent,) = cluster.segments.ends
        cluster.segments.ends[parent] = [5, 6, 7, 8]
        assert (await nodes[0].http.post(f"{TOPIC}/split/0")).status_code == 204
        body = await layout(nodes[0])
        assert ranges(body) == {"1": (0, 32767), "2": (32768, 65535)}
        sealed = body["segments"]["0"]
        assert (sealed["state"], sealed["childIds"]) == ("SEALED", [1, 2])
        assert sealed["endOffsets"] == [5, 6, 7, 8]
        assert sealed["sealedAtEpoch"] == body["epoch"]
        assert cluster.segments.sealed == {parent}

        assert (await nodes[0].http.post(f"{TOPIC}/merge/2/1")).status_code == 204
        body = await layout(nodes[0])
        assert ranges(body) == {"3": (0, 65535)}
        assert body["segments"]["3"]["parentIds"] == [2, 1]

        answer = await nodes[0].http.post(f"{TOPIC}/rebucket/3", params={"bucketCount": 8})
        assert answer.status_code == 204
        body = await layout(nodes[0])
        assert ranges(body) == {"4": (0, 65535)}
        assert len(body["segments"]["4"]["entryBucketSplits"]) == 7

    with_http(test)


def test_every_bad_request_has_its_own_status_and_reason() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        refused(await http.get(TOPIC), 404, "topic://public/default/orders")
        refused(await http.delete(TOPIC), 404, "topic://public/default/orders")
        refused(await http.post(f"{TOPIC}/split/0"), 404, "topic://public/default/orders")
        refused(await http.put(f"{HOME}/bad%20name"), 412, "bad name")
        refused(await http.put("/admin/v2/scalable/public/none/orders"), 404, "public/none")
        for count in (0, -1, 65_537):
            answer = await http.put(TOPIC, params={"numInitialSegments": count})
            refused(answer, 412, "numInitialSegments must be >= 1")
        refused(await http.put(TOPIC, json={"a": 1}), 400, "body")
        await created(nodes[0], 4)
        refused(await http.put(TOPIC), 409, "Scalable topic already exists: topic://public/def")
        refused(await http.post(f"{TOPIC}/split/99"), 404, "Segment not found: 99")
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

    with_http(test)


def test_who_names_a_segment_that_is_not_active_is_told_those_that_are() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        await created(nodes[0], 3)
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
        await created(nodes[0], 14)
        few = "the active segments are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more"
        refused(await http.post(f"{TOPIC}/split/99"), 404, few)

    with_http(test)


def test_a_segment_of_one_hash_cannot_be_split() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0], 20_000)  # of three and of four hashes
        assert (await nodes[0].http.post(f"{TOPIC}/split/0")).status_code == 204
        body = await layout(nodes[0])
        small = next(each for each, (low, high) in ranges(body).items() if low == high)
        refused(await nodes[0].http.post(f"{TOPIC}/split/{small}"), 412, "range of size 1")

    with_http(test)


def test_topics_are_listed_by_their_properties() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
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

    with_http(test)


def test_a_deleted_topic_leaves_nothing_and_can_be_created_again() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        await created(nodes[0], 2)
        await http.put(f"{TOPIC}/subscriptions/billing")
        assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
        before = set(cluster.segments.partitions)
        billing = (await http.get(f"{TOPIC}/stats")).json()["subscriptions"]["billing"]
        assert (await http.delete(TOPIC)).status_code == 204
        assert cluster.segments.partitions == {}
        assert cluster.segments.deleted_groups == {billing["groupId"]}
        refused(await http.get(TOPIC), 404, "not found")
        assert (await http.get(HOME)).json() == []
        await created(nodes[0], 2)
        assert before.isdisjoint(cluster.segments.partitions)
        assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
        assert (await http.get(f"{TOPIC}/stats")).json()["subscriptions"] == {}

    with_http(test)


def test_changes_reach_the_controller_from_any_node_and_reading_is_served_by_all() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created_anywhere(nodes)
        answers = [await node.http.post(f"{TOPIC}/split/0?x=1") for node in nodes]
        redirected = [each for each in answers if each.status_code == 307]
        assert len(redirected) == 2
        done = next(each for each in answers if each.status_code != 307)
        assert done.status_code == 204
        (location,) = {each.headers["location"] for each in redirected}
        controller = next(n for n, a in zip(nodes, answers, strict=True) if a is done)
        assert location == f"http://{controller.id}{TOPIC}/split/0?x=1"
        epoch = (await layout(controller))["epoch"]
        await until(lambda: all(epoch_at(node) == epoch for node in nodes))
        for node in nodes:
            assert await layout(node) == await layout(controller)

    with_http(test, 3)


def epoch_at(node: HttpNode) -> int:
    topic = node.node.view.topic("public/default/orders")
    return -1 if topic is None else topic.epoch


async def created_anywhere(nodes: list[HttpNode]) -> None:
    answers = [await node.http.put(TOPIC) for node in nodes]
    assert sorted(each.status_code for each in answers) == [204, 307, 307]


def test_subscriptions_come_and_go_and_are_counted() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        refused(await http.put(f"{TOPIC}/subscriptions/a"), 404, "not found")
        await created(nodes[0])
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
        assert cluster.segments.share_groups == {found["queue"]["groupId"]}
        assert (await http.post(f"{TOPIC}/split/0")).status_code == 204
        assert (await http.delete(f"{TOPIC}/subscriptions/stream")).status_code == 204
        await until(lambda: cluster.segments.deleted_groups == {found["stream"]["groupId"]})
        refused(await http.delete(f"{TOPIC}/subscriptions/stream"), 404, "Subscription not found")

    with_http(test)


def test_topics_cannot_be_made_where_they_are_switched_off() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        disabled = "Scalable topics are disabled on this broker"
        refused(await nodes[0].http.put(TOPIC), 412, disabled)

    with_http(test, scalableTopicEnabled=False)


@pytest.mark.parametrize(("budget", "most", "expected"), [(4, 1024, 4), (100, 16, 16), (1, 1, 1)])
def test_entry_buckets_follow_the_budget_and_the_ceiling(
    budget: int, most: int, expected: int
) -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        assert list(cluster.segments.partitions.values()) == [expected]

    with_http(
        test, scalableTopicEntryBucketBudget=budget, scalableTopicEntryBucketMaxPerSegment=most
    )


def test_a_layout_is_what_its_description_says() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0], 3)
        await nodes[0].http.post(f"{TOPIC}/split/0")
        LayoutBody.model_validate((await nodes[0].http.get(TOPIC)).json(), extra="forbid")

    with_http(test)


def test_a_namespace_with_topics_is_not_deleted() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        path = "/admin/v2/namespaces/public/default"
        refused(await nodes[0].http.delete(path), 409, "non empty namespace")
        await nodes[0].http.delete(TOPIC)
        assert (await nodes[0].http.delete(path)).status_code == 204

    with_http(test)
