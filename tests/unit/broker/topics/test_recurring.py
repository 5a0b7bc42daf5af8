"""What a node does again and again for its topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.broker.topics.operations import TopicOperations
from support.kept_topic import kept_topic


def _looks(topics: TopicOperations) -> Any:
    return topics.looks


def _surveys(topics: TopicOperations) -> Any:
    return topics.surveys


def _watch(topics: TopicOperations) -> Any:
    return topics.position_watch


@pytest.mark.parametrize("part", [_looks, _surveys, _watch])
@pytest.mark.parametrize("stops", [False, True])
async def test_a_round_that_is_due_is_begun_unless_the_node_stops(part: Any, stops: bool) -> None:
    async with kept_topic() as kept:
        recurring = part(kept.topics)
        recurring._now = lambda: kept.node.runtime.now() + 1e6
        if stops:
            await recurring.stop()
        kept.cluster.tick()
        tasks = {each.get_name() for each in asyncio.all_tasks()}
        assert (recurring._what in tasks) is not stops
