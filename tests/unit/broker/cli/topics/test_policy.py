"""`anabranch policy` against a node's real HTTP interface."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import NamedTuple

import msgspec
import pytest
from click.testing import CliRunner

from anabranch.broker.cli.main import cli
from anabranch.broker.cli.topics.policy import NODE_SETTINGS
from anabranch.broker.settings import SETTING_NAMES
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp, TopicCause
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.topic import TopicMove
from support.http import HttpNode, with_http
from support.memory_cluster import WAIT_S, MemoryCluster
from support.scalable import created

TOPIC = "public/default/orders"


class Done(NamedTuple):
    exit_code: int
    output: str
    errors: str


async def policy(node: HttpNode, *arguments: str) -> Done:
    """The command in a process of its own, for the node answers, and logs, in this one."""
    words = ["policy", *arguments, "--url", str(node.http.base_url)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "anabranch.broker.cli", *words, stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    return Done(process.returncode or 0, output.decode(), errors.decode())


def test_fields_are_set_one_by_one_shown_with_their_level_and_removed() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node = nodes[0]
        await created(node)
        assert (await policy(node, "set", "public/default", "maxSegments=8")).exit_code == 0
        assert (await policy(node, "set", TOPIC, "minSegments=2", "enabled=false")).exit_code == 0
        done = await policy(node, "set", TOPIC, "splitCooldownSeconds=0.5")
        assert done.output == f"{TOPIC}: splitCooldownSeconds=0.5\n"
        done = await policy(
            node, "set", TOPIC, "splitCooldown=500ms", "mergeBytesRateInThreshold=1MB"
        )
        assert (
            done.output == f"{TOPIC}: splitCooldownSeconds=0.5, mergeBytesRateInThreshold=1000000\n"
        )
        assert (await policy(node, "remove", TOPIC, "mergeBytesRateInThreshold")).exit_code == 0
        shown = (await policy(node, "show", TOPIC)).output
        rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
        assert rows["FIELD"] == ["VALUE", "SET", "BY"]
        assert rows["enabled"] == ["false", "topic"]
        assert rows["minSegments"] == ["2", "topic"]
        assert rows["splitCooldownSeconds"] == ["0.5", "topic"]
        assert rows["maxSegments"] == ["8", "namespace"]
        assert rows["splitBytesRateInThreshold"] == ["50000000", "broker"]
        told = json.loads((await policy(node, "show", "public/default", "--json")).output)
        assert told == {"maxSegments": 8}
        left = await policy(node, "remove", TOPIC, "enabled", "minSegments")
        assert left.output == f"{TOPIC} overrides splitCooldownSeconds\n"
        assert (await policy(node, "remove", TOPIC)).output == f"{TOPIC} overrides nothing\n"
        assert (await policy(node, "remove", "public/default")).exit_code == 0
        bare = await policy(node, "show", "public/default")
        assert bare.output == "public/default overrides nothing\n"

    with_http(test)


def test_what_a_node_refuses_is_said_and_changes_nothing() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node = nodes[0]
        await created(node)
        done = await policy(node, "set", TOPIC, "minSegments=100")
        assert done.exit_code == 1
        assert "maxSegments must be >= minSegments" in done.errors
        gone = await policy(node, "show", "public/default/absent")
        assert (gone.exit_code, "not found" in gone.errors) == (1, True)

    with_http(test)


def test_what_another_release_has_set_and_nobody_here_can_read_can_be_removed() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        node, runtime = nodes[0], nodes[0].node.runtime
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
            assert "ofALaterRelease" in (await policy(node, "remove", target, "enabled")).errors
            done = await policy(node, "remove", target)
            assert done.output == f"{target} overrides nothing\n"
        assert (await policy(node, "set", TOPIC, "maxSegments=8")).exit_code == 0

    with_http(test)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", TOPIC), "Missing argument"),
        (("set", TOPIC, "maxSegment=3"), "maxSegments"),
        (("set", TOPIC, "maxSegments"), "not of the form FIELD=VALUE"),
        (("set", TOPIC, "maxSegments=many"), "neither a number nor true or false"),
        (("set", TOPIC, "maxSegments=inf"), "neither a number nor true or false"),
        (("set", TOPIC, "splitCooldownSeconds=nan"), "neither a number nor true or false"),
        (("set", TOPIC, "entryBucketBudget=8"), "scalableTopicEntryBucketBudget"),
        (("remove", TOPIC, "everything"), "no field of a policy"),
    ],
)
def test_wrong_usage_is_said_in_words_and_asks_no_node(
    arguments: tuple[str, ...], said: str
) -> None:
    found = CliRunner().invoke(cli, ["policy", *arguments, "--url", "http://127.0.0.1:1"])
    assert found.exit_code == 2
    assert said in found.output


def test_the_settings_named_are_those_that_a_policy_shows_and_nobody_overrides() -> None:
    shown = {field.encode_name for field in msgspec.structs.fields(AutoScalePolicy)}
    assert set(NODE_SETTINGS) == shown - set(OVERRIDE_FIELDS)
    assert set(NODE_SETTINGS.values()) <= set(SETTING_NAMES)
