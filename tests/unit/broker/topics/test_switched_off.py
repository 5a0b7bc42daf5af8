"""scalableTopicEnabled=false: nothing of scalable topics is served or done on that node."""

from __future__ import annotations

import pytest

from anabranch.broker.errors import PreconditionError
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.http import PATIENT
from support.memory_cluster import memory_cluster, until

NAME = "public/default/orders"


async def test_a_node_where_topics_are_switched_off_neither_serves_nor_scales_them() -> None:
    async with memory_cluster(1, **PATIENT, brokerServicePort=7000) as cluster:
        node = await cluster.create()
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
