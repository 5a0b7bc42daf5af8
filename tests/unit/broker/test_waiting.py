"""Requests that wait for a bundle."""

from __future__ import annotations

from anabranch.core.names import parse_topic
from anabranch.wire import clock
from support import steady
from support.memory_cluster import memory_cluster, until

UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


def test_who_waits_for_a_bundle_is_told_when_it_is_opened_long_after_it_was_assigned() -> None:
    async def test() -> None:
        async with memory_cluster(1) as cluster:
            node = cluster.nodes[0]
            await node.operations.lookups.lookup(*parse_topic(TOPIC))
            await until(lambda: node.runtime.core.may_act(UNIT, clock.now()))
            # Lost and regained, while something of the first time is still being finished here.
            node.runtime.core.serving[UNIT] = False
            waiting = node.runtime.changed(UNIT)
            node.runtime.closed(UNIT)
            assert node.runtime.core.may_act(UNIT, clock.now())
            assert waiting.done()

    steady.run(test())
