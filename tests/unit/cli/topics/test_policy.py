"""`anabranch policy` against a node's real HTTP interface."""

from __future__ import annotations

import json

import msgspec

from anabranch.broker.settings import SETTING_NAMES
from anabranch.cli.topics.policy import NODE_SETTINGS
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy
from anabranch.core.entities.topic import TopicMove
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp, TopicCause
from anabranch.core.topics.propose import topic_change
from support.commands import Done, ran
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import created

TOPIC = "public/default/orders"


async def policy(node: HttpNode, *lines: str) -> list[Done]:
    """What `anabranch policy` does with each line."""
    return await ran(str(node.http.base_url), *(f"policy {line}" for line in lines))


@on_nodes()
async def test_fields_are_set_one_by_one_shown_with_their_level_and_removed(node: HttpNode) -> None:
    await created(node)
    done = await policy(
        node,
        "set public/default maxSegments=8",
        f"set {TOPIC} minSegments=2 enabled=false",
        f"set {TOPIC} splitCooldownSeconds=0.5",
        f"set {TOPIC} splitCooldown=500ms mergeBytesRateInThreshold=1MB",
        f"remove {TOPIC} mergeBytesRateInThreshold",
        f"show {TOPIC}",
        "show public/default --json",
        f"remove {TOPIC} enabled minSegments",
        f"remove {TOPIC}",
        "remove public/default",
        "show public/default",
    )
    assert [each for each in done if each.exit_code] == []
    _, _, first, second, _, shown, told, left, *bare = [each.output for each in done]
    assert first == f"{TOPIC}: splitCooldownSeconds=0.5\n"
    assert second == f"{TOPIC}: splitCooldownSeconds=0.5, mergeBytesRateInThreshold=1000000\n"
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert (rows["FIELD"], rows["enabled"]) == (["VALUE", "SET", "BY"], ["false", "topic"])
    assert rows["splitCooldownSeconds"] == ["0.5", "topic"]
    assert rows["maxSegments"] == ["8", "namespace"]
    assert rows["splitBytesRateInThreshold"] == ["50000000", "broker"]
    assert json.loads(told) == {"maxSegments": 8}
    assert left == f"{TOPIC} overrides splitCooldownSeconds\n"
    assert bare[0] == f"{TOPIC} overrides nothing\n"
    assert bare[2] == "public/default overrides nothing\n"


@on_nodes()
async def test_what_another_release_has_set_and_nobody_here_can_read_can_be_removed(
    node: HttpNode, cluster: MemoryCluster
) -> None:
    runtime = node.node.runtime
    await created(node)
    strange = ("ofALaterRelease", "1")
    topic, home = runtime.view.topic(TOPIC), runtime.view.namespace("public/default")
    assert topic is not None
    assert home is not None
    actor = runtime.core.actor()
    operator = TopicCause.OPERATOR
    cluster.append(
        topic_change(
            actor,
            TOPIC,
            topic,
            TopicMove.POLICY,
            runtime.proposals.new_id(),
            operator,
            auto_scale=strange,
        )
    )
    cluster.append(
        NamespaceChange(
            proposal_id=runtime.proposals.new_id(),
            namespace="public/default",
            op=PolicyOp.UPDATE,
            version=home.version + 1,
            actor=actor.broker,
            session=actor.session,
            cause=Cause.OPERATOR,
            auto_scale=strange,
        )
    )
    for target in (TOPIC, "public/default"):
        one, whole = await policy(node, f"remove {target} enabled", f"remove {target}")
        assert "ofALaterRelease" in one.errors
        assert whole.output == f"{target} overrides nothing\n"
    (again,) = await policy(node, f"set {TOPIC} maxSegments=8")
    assert again.exit_code == 0


def test_the_settings_named_are_those_that_a_policy_shows_and_nobody_overrides() -> None:
    shown = {field.encode_name for field in msgspec.structs.fields(AutoScalePolicy)}
    assert set(NODE_SETTINGS) == shown - set(OVERRIDE_FIELDS)
    assert set(NODE_SETTINGS.values()) <= set(SETTING_NAMES)
