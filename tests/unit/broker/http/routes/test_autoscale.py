"""Auto-scale policies through HTTP: set, read and removed on both levels."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import Level
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until
from support.scalable import TOPIC, created, layout, refused

NAME = "public/default/orders"
POLICY = f"{TOPIC}/autoScalePolicy"
ABOVE = "/admin/v2/namespaces/public/default/scalableTopicAutoScalePolicy"


def test_a_topic_overrides_its_namespace_which_overrides_the_settings_field_by_field() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        http = nodes[0].http
        above = {"maxSegments": 8, "minSegments": 2}
        assert (await http.post(ABOVE, json=above)).status_code == 204
        own = {"minSegments": 3, "splitCooldownSeconds": 1.5, "mergeWindowSeconds": None}
        assert (await http.post(POLICY, json=own)).status_code == 204
        assert (await http.get(ABOVE)).json() == above
        assert (await http.get(POLICY)).json() == {"minSegments": 3, "splitCooldownSeconds": 1.5}
        found = nodes[0].node.operations.topics.policies.effective(NAME)
        policy, origins = found.policy, found.origins
        assert (policy.max_segments, origins["maxSegments"]) == (8, Level.NAMESPACE)
        assert (policy.min_segments, origins["minSegments"]) == (3, Level.TOPIC)
        assert (policy.max_dag_depth, origins["maxDagDepth"]) == (10, Level.BROKER)
        assert (await layout(nodes[0]))["autoScalePolicy"] == {
            "minSegments": 3,
            "splitCooldownSeconds": 1.5,
        }

    with_http(test)


def test_what_is_removed_falls_back_to_the_level_above() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        http = nodes[0].http
        for path in (POLICY, ABOVE):
            answer = await http.get(path)
            assert (answer.status_code, answer.content) == (204, b"")
            assert (await http.post(path, json={"enabled": False})).status_code == 204
        assert not nodes[0].node.operations.topics.policies.effective(NAME).policy.enabled
        for path in (POLICY, ABOVE):
            assert (await http.delete(path)).status_code == 204
            assert (await http.get(path)).status_code == 204
            assert (await http.delete(path)).status_code == 204, "once more changes nothing"
        assert nodes[0].node.operations.topics.policies.effective(NAME).policy.enabled
        assert "autoScalePolicy" not in await layout(nodes[0])

    with_http(test)


@pytest.mark.parametrize("path", [POLICY, ABOVE])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"maxSegment": 3}, "maxSegments"),
        ({"maxEntryBucketsPerSegment": 3}, "no field"),
        ({"maxSegments": "3"}, "a whole number"),
        ({"maxSegments": 2.5}, "a whole number"),
        ({"enabled": 1}, "true or false"),
        ({"splitCooldownSeconds": True}, "a number"),
        ({"splitCooldownSeconds": -1}, "splitCooldown must not be negative"),
        ({"minSegments": 65}, "maxSegments must be >= minSegments"),
        ({"mergeMsgRateInThreshold": 10_000}, "hysteresis"),
    ],
)
def test_what_is_no_sound_policy_is_refused_and_changes_nothing(
    path: str, body: dict[str, Any], reason: str
) -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        refused(await nodes[0].http.post(path, json=body), 412, reason)
        assert (await nodes[0].http.get(path)).status_code == 204

    with_http(test)


def test_halves_that_fit_only_together_are_judged_together() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        http = nodes[0].http
        assert (await http.post(ABOVE, json={"maxSegments": 100})).status_code == 204
        assert (await http.post(POLICY, json={"minSegments": 80})).status_code == 204
        assert (await http.delete(ABOVE)).status_code == 204, "the topic's is judged when it is set"
        found = nodes[0].node.operations.topics.policies.effective(NAME)
        assert found.fault.endswith("maxSegments must be >= minSegments")

    with_http(test)


def test_policies_of_what_is_not_there_are_not_found() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        http = nodes[0].http
        elsewhere = ABOVE.replace("/default/", "/nowhere/")
        for path, name in ((POLICY, "topic://public/default/orders"), (elsewhere, "Namespace")):
            refused(await http.get(path), 404, name)
            refused(await http.post(path, json={"maxSegments": 3}), 404, name)
            refused(await http.delete(path), 404, name)

    with_http(test)


def test_what_a_topic_overrides_is_told_by_its_controller_alone() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        made = [await each.http.put(TOPIC, params={"numInitialSegments": 1}) for each in nodes]
        assert sorted(each.status_code for each in made) == [204, 307]
        await until(lambda: all(_active(each) == 1 for each in nodes))
        answers = [await each.http.get(POLICY) for each in nodes]
        assert sorted(each.status_code for each in answers) == [204, 307]

    with_http(test, 2)


def test_any_node_takes_a_namespaces_policy_and_every_node_knows_it() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        assert (await nodes[1].http.post(ABOVE, json={"maxSegments": 5})).status_code == 204
        offset = nodes[1].node.view.next_offset
        for each in nodes:

            def caught_up(node: HttpNode = each) -> bool:
                return node.node.view.next_offset >= offset

            await until(caught_up)
            assert (await each.http.get(ABOVE)).json() == {"maxSegments": 5}

    with_http(test, 2)


# --- what comes of it ------------------------------------------------------------------------


def test_a_hot_topic_splits_and_its_statistics_say_why() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        cluster.loads["public/default/orders"] = {0: SegmentLoad(20_000.0, 0.0, 0.0, 0.0, 1)}
        assert (await nodes[0].http.post(POLICY, json={"maxSegments": 2})).status_code == 204
        await until(lambda: _active(nodes[0]) == 2)
        stats = (await nodes[0].http.get(f"{TOPIC}/stats")).json()
        assert stats["segments"]["0"]["load"] == {
            "msgRateIn": 20_000.0,
            "bytesRateIn": 0.0,
            "msgRateOut": 0.0,
            "bytesRateOut": 0.0,
            "modifiedMs": 1,
            "estimated": [],
        }
        assert stats["segments"]["1"]["load"] is None
        scale = stats["autoScale"]
        assert scale["policy"]["maxSegments"] == {"value": 2, "level": "topic"}
        assert scale["policy"]["minSegments"] == {"value": 1, "level": "broker"}
        (split,) = scale["decisions"]
        assert (split["action"], split["reason"]) == ("split 0", "msgRateIn")
        assert "20000/s, over 10000" in split["why"]
        assert (scale["now"]["action"], scale["now"]["reason"]) == ("none", None)
        figures = (await nodes[0].http.get("/metrics")).text
        label = '{topic="public/default/orders"}'
        assert f"pulsar_scalable_topic_active_segments{label} 2.0" in figures
        assert f"pulsar_scalable_topic_auto_splits_total{label} 1.0" in figures
        assert f"pulsar_scalable_topic_auto_merges_total{label} 0.0" in figures

    with_http(test)


def test_a_policy_that_cannot_be_used_stops_auto_scaling_and_says_so() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        http = nodes[0].http
        assert (await http.post(ABOVE, json={"maxSegments": 100})).status_code == 204
        assert (await http.post(POLICY, json={"minSegments": 80})).status_code == 204
        assert (await http.delete(ABOVE)).status_code == 204
        scale = (await http.get(f"{TOPIC}/stats")).json()["autoScale"]
        assert scale["fault"].endswith("maxSegments must be >= minSegments")
        assert scale["now"]["reason"] == "invalid_policy"

    with_http(test)


def test_an_operation_by_hand_starts_the_same_cooldown() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await created(nodes[0])
        assert (await nodes[0].http.post(f"{TOPIC}/split/0")).status_code == 204
        cluster.loads["public/default/orders"] = {1: SegmentLoad(20_000.0, 0.0, 0.0, 0.0, 1)}
        now = (await nodes[0].http.get(f"{TOPIC}/stats")).json()["autoScale"]["now"]
        assert (now["action"], now["reason"]) == ("none", None)
        assert "split cooldown" in now["why"]

    with_http(test)


def _active(node: HttpNode) -> int:
    topic = node.node.view.topic("public/default/orders")
    return sum(part.is_active for part in topic.segments) if topic is not None else 0
