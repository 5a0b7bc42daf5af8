"""Auto-scale policies through HTTP: set, read and removed on both levels."""

from __future__ import annotations

from anabranch.core.autoscale.load import SegmentLoad
from support.http import HttpNode, on_nodes
from support.memory_cluster import until
from support.scalable import TOPIC, created, layout, refused

NAME = "public/default/orders"
POLICY = f"{TOPIC}/autoScalePolicy"
ABOVE = "/admin/v2/namespaces/public/default/scalableTopicAutoScalePolicy"


@on_nodes()
async def test_what_is_removed_falls_back_to_the_level_above(node: HttpNode) -> None:
    await created(node)
    http = node.http
    for path in (POLICY, ABOVE):
        answer = await http.get(path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await http.post(path, json={"enabled": False})).status_code == 204
        assert (await http.get(path)).json() == {"enabled": False}
    assert (await layout(node))["autoScalePolicy"] == {"enabled": False}
    assert not node.node.operations.topics.policies.effective(NAME).policy.enabled
    for path in (POLICY, ABOVE):
        assert (await http.delete(path)).status_code == 204
        assert (await http.get(path)).status_code == 204
        assert (await http.delete(path)).status_code == 204, "once more changes nothing"
    assert node.node.operations.topics.policies.effective(NAME).policy.enabled
    assert "autoScalePolicy" not in await layout(node)


@on_nodes()
async def test_what_is_no_sound_policy_is_refused_and_changes_nothing(node: HttpNode) -> None:
    await created(node)
    for path in (POLICY, ABOVE):
        for body, reason in (
            ({"maxSegment": 3}, "maxSegments"),
            ({"maxSegments": "3"}, "a whole number"),
            ({"splitCooldownSeconds": -1}, "splitCooldown must not be negative"),
            ({"minSegments": 65}, "maxSegments must be >= minSegments"),
        ):
            refused(await node.http.post(path, json=body), 412, reason)
            assert (await node.http.get(path)).status_code == 204


@on_nodes()
async def test_halves_that_fit_no_longer_together_stop_auto_scaling(node: HttpNode) -> None:
    await created(node)
    http = node.http
    assert (await http.post(ABOVE, json={"maxSegments": 100})).status_code == 204
    assert (await http.post(POLICY, json={"minSegments": 80})).status_code == 204
    assert (await http.delete(ABOVE)).status_code == 204, "the topic's is judged when it is set"
    scale = (await http.get(f"{TOPIC}/stats")).json()["autoScale"]
    assert scale["fault"].endswith("maxSegments must be >= minSegments")
    assert scale["now"]["reason"] == "invalid_policy"


@on_nodes()
async def test_policies_of_what_is_not_there_are_not_found(node: HttpNode) -> None:
    http = node.http
    elsewhere = ABOVE.replace("/default/", "/nowhere/")
    for path, name in ((POLICY, "topic://public/default/orders"), (elsewhere, "Namespace")):
        refused(await http.get(path), 404, name)
        refused(await http.post(path, json={"maxSegments": 3}), 404, name)
        refused(await http.delete(path), 404, name)


# --- what comes of it ------------------------------------------------------------------------


@on_nodes()
async def test_a_hot_topic_splits_and_its_statistics_say_why(node: HttpNode) -> None:
    await created(node)
    node.cluster.loads["public/default/orders"] = {0: SegmentLoad(20_000.0, 0.0, 0.0, 0.0, 1)}
    assert (await node.http.post(POLICY, json={"maxSegments": 2})).status_code == 204
    await until(lambda: _active(node) == 2)
    stats = (await node.http.get(f"{TOPIC}/stats")).json()
    assert stats["segments"]["0"]["load"] == {
        "msgRateIn": 20_000.0,
        "bytesRateIn": 0.0,
        "msgRateOut": 0.0,
        "bytesRateOut": 0.0,
        "modifiedMs": 1,
    }
    assert stats["segments"]["1"]["load"] is None
    scale = stats["autoScale"]
    assert scale["policy"]["maxSegments"] == {"value": 2, "level": "topic"}
    assert scale["policy"]["minSegments"] == {"value": 1, "level": "broker"}
    (split,) = scale["decisions"]
    assert (split["action"], split["reason"]) == ("split 0", "msgRateIn")
    assert "20000/s, over 10000" in split["why"]
    assert (scale["now"]["action"], scale["now"]["reason"]) == ("none", None)
    figures = (await node.http.get("/metrics")).text
    label = '{topic="public/default/orders"}'
    assert f"pulsar_scalable_topic_active_segments{label} 2.0" in figures
    assert f"pulsar_scalable_topic_auto_splits_total{label} 1.0" in figures
    assert f"pulsar_scalable_topic_auto_merges_total{label} 0.0" in figures


def _active(node: HttpNode) -> int:
    topic = node.node.view.topic("public/default/orders")
    return sum(part.is_active for part in topic.segments) if topic is not None else 0
