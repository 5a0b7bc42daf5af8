"""scalableTopicEnabled=false: nothing of scalable topics is served or done on that node."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.broker.errors import PreconditionError
from anabranch.core.autoscale.decisions import NoAction
from anabranch.core.autoscale.policy import Level
from anabranch.core.autoscale.schedule import AutoScaleSettings, policy_here
from anabranch.wire import anabranch_pb2 as pb
from support import steady
from support.autoscale import POLICY
from support.autoscale_scene import INTERVAL_S, Scene
from support.binary_consumer import client_of
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, memory_cluster, until
from support.world import TOPIC

NAME = "public/default/orders"


def test_a_node_where_topics_are_switched_off_neither_serves_nor_scales_them() -> None:
    async def test(cluster: MemoryCluster) -> None:
        located = await cluster.nodes[0].operations.topics.access.find_controller(NAME)
        node = next(node for node in cluster.nodes if node.id == located.broker)
        await node.operations.topics.create(NAME, 1, {})
        off = cluster.node(9, **PATIENT, brokerServicePort=7000, scalableTopicEnabled=False)
        await cluster.start(off)
        disabled = "Scalable topics are disabled on this broker"
        async with client_of(off, "a") as client:
            answer = await client.refused()
            assert (answer.code, answer.reason) == (pb.ServerError.NotAllowedError, disabled)
        watches = off.operations.topics.watches
        with pytest.raises(PreconditionError, match=disabled):
            await watches.appears(NAME)
        await node.operations.topics.policies.set_topic(NAME, {"enabled": True})
        await until(lambda: off.view.next_offset == len(cluster.entries))
        here = off.operations.topics.policies.effective(NAME)
        assert (here.policy.enabled, here.origins["enabled"].value) == (False, "broker")
        assert node.operations.topics.policies.effective(NAME).policy.enabled

    async def body() -> None:
        async with memory_cluster(1, **PATIENT, brokerServicePort=7000) as cluster:
            await test(cluster)

    steady.run(body())


def test_where_it_is_not_allowed_nothing_is_done_whatever_a_topic_overrides() -> None:
    scene = Scene()
    scene.override(enabled=True)
    allowed = AutoScaleSettings(POLICY, INTERVAL_S)
    forbidden = msgspec.structs.replace(allowed, is_allowed=False)
    scene.settings = msgspec.structs.replace(scene.settings, auto_scale=forbidden)
    scene.controller = scene.fresh()
    evaluation = scene.evaluation()
    assert evaluation is not None
    assert isinstance(evaluation.decision, NoAction)
    assert evaluation.decision.why == "auto-scaling is switched off"
    found = policy_here(scene.world.replica, TOPIC, scene.topic, forbidden)
    assert (found.policy.enabled, found.origins["enabled"]) == (False, Level.BROKER)
    assert policy_here(scene.world.replica, TOPIC, scene.topic, allowed).policy.enabled
