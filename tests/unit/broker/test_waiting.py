"""Requests that wait for a bundle."""

from __future__ import annotations

import asyncio
import math

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.core.names import parse_topic
from anabranch.wire import clock
from support.binary import one_node
from support.memory_cluster import WAIT_S, until

UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


async def test_who_waits_for_a_bundle_is_told_when_it_is_opened() -> None:
    async with one_node() as node:
        await node.operations.lookups.lookup(*parse_topic(TOPIC))
        await until(lambda: node.runtime.core.may_act(UNIT, clock.now()))
        # Lost and regained, while something of the first time is still being finished here.
        node.runtime.core.serving[UNIT] = False
        waiting = node.runtime.changed(UNIT)
        node.runtime.closed(UNIT)
        assert node.runtime.core.may_act(UNIT, clock.now())
        assert waiting.done()


async def test_who_would_wait_for_a_bundle_of_a_node_that_has_ended_is_told_so_at_once() -> None:
    async with one_node() as node:
        runtime = node.runtime
        waiting = asyncio.create_task(runtime.until_changed(UNIT, math.inf, "never"))
        await asyncio.sleep(0)
        runtime.fail("the test says so")
        for told in (waiting, runtime.until_changed(UNIT, math.inf, "never")):
            with pytest.raises(UnavailableError, match="this node is stopping"):
                await asyncio.wait_for(told, WAIT_S)
        assert runtime.watching == 0
