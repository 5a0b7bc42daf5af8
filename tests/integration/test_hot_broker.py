"""A broker that is asked too much gives bundles away by itself; clients notice nothing of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from anabranch.client import Client, StreamConsumer
from anabranch.core.balance.shedding import RoundEnd
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import MEASURES, NodeProcess
from support.alternation import Alternation, Send
from support.hot_broker import SETTINGS, BusyLookups, HotBroker
from support.processes import run
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import eventually, until

pytestmark = pytest.mark.long

_CYCLES_MAX = 3
_KEYS = 2
_BEFORE = 20  # messages of a topic
# Every cycle is on the log of the leader's process.
_TOLD = ("loadBalancerDebugModeEnabled=true", "logFormat=json")


@pytest.fixture
def nodes(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("hot")
    with topic_cluster(kafka, f"{folder.name}.", folder, *SETTINGS, *MEASURES, *_TOLD) as running:
        yield running


class Cycle(msgspec.Struct, frozen=True):
    """One cycle of the leader, or one bundle that it moved in it. `is_calm`: no broker was hot."""

    at_ms: float
    moves: bool
    is_calm: bool


def cycles(nodes: Sequence[NodeProcess]) -> list[Cycle]:
    """All of them, in their order; a cycle that moves some bundles is there for each."""
    found = []
    for node in nodes:
        for line in node.log_file.read_text(errors="replace").splitlines():
            told = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
            moves = told.get("event") == "balance.unload"
            if moves or told.get("event") == "balance.nothing_to_unload":
                at = datetime.fromisoformat(told["timestamp"])
                is_calm = told.get("why") == RoundEnd.BALANCED.value
                found.append(Cycle(at.timestamp() * 1000, moves, is_calm))
    return sorted(found, key=lambda each: each.at_ms)


def history(nodes: TopicCluster) -> list[dict[str, Any]]:
    """What the balancer moved, with its reasons, as it is on the log."""
    of = ("--bootstrap-servers", nodes.kafka, "--set", f"topicPrefix={nodes.prefix}")
    told = run("balance", "history", *of, "--json")
    assert told.returncode == 0, told.stderr
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


async def test_a_hot_broker_is_relieved_within_three_cycles_and_clients_notice_nothing(
    nodes: TopicCluster,
) -> None:
    scene = HotBroker(nodes.nodes, nodes.nodes[0], "public/hot", "public/quiet")
    try:
        await scene.create()
        async with Client(nodes.url) as near, Client(nodes.url) as far:
            await relieved(nodes, scene, near, far)
    finally:
        await scene.close()


async def relieved(nodes: TopicCluster, scene: HotBroker, near: Client, far: Client) -> None:
    """Heats it, under messages whose keys two producers share."""
    flows = [await begun(topic, near, far) for topic in scene.all_topics]
    receiving = [asyncio.create_task(each.history.receive(each.consumer)) for each in flows]
    # All at once: a broker that has no messages for long is given bundles for that alone.
    sending = [asyncio.create_task(each.history.run(each.senders)) for each in flows]
    for each in flows:
        await each.history.more(_BEFORE)
    had = await scene.held()
    lookups = BusyLookups(nodes.nodes, list(scene.topics.values()))
    began_ms = (await scene.seen()).at_ms
    asking = asyncio.create_task(lookups.run())

    await eventually(partial(has_fewer, scene, had))
    moved = [
        each for each in await asyncio.to_thread(history, nodes) if each["timestampMs"] >= began_ms
    ]
    assert {each["reason"] for each in moved} <= {"OVERLOADED", "UNDERLOADED"}
    assert {each["to"] for each in moved} <= {each.broker_id for each in nodes.nodes}
    assert all(each["predicted"] < each["deviation"] for each in moved)
    deviation = moved[0]["deviation"]
    found = [each for each in cycles(nodes.nodes) if each.at_ms >= began_ms]
    before = list(itertools.takewhile(lambda each: not each.moves, found))
    is_hot = list(itertools.takewhile(lambda each: not each.is_calm, reversed(before)))
    assert len(is_hot) < _CYCLES_MAX

    await eventually(partial(is_calmer, scene, deviation, moved[0]["timestampMs"]))
    for each in flows:
        await each.history.more(_BEFORE)
    assert not any(each.done() for each in (*sending, *receiving, asking))
    await ended(*sending, asking)
    await until(lambda: not any(each.history.missing() for each in flows))
    await ended(*receiving)
    assert lookups.answered > 0
    assert lookups.refused == {}
    for each in flows:
        assert each.history.repeated() == []
        assert each.history.turned_when_stored() == []
        assert each.history.turned_when_delivered() == []


class Flow(msgspec.Struct, frozen=True):
    """The messages of one topic: their senders, who receives them, and what became of them."""

    history: Alternation
    senders: Sequence[Send]
    consumer: StreamConsumer


async def begun(topic: str, near: Client, far: Client) -> Flow:
    senders = [(await each.create_producer(topic)).send for each in (near, far)]
    return Flow(Alternation(_KEYS), senders, await far.subscribe(topic, "billing"))


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancels them; none may have failed."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


async def has_fewer(scene: HotBroker, had: int) -> bool:
    return await scene.held() < had


async def is_calmer(scene: HotBroker, deviation: float, since_ms: float) -> bool:
    """Whether loads that were all measured since then lie closer together."""
    seen = await scene.seen()
    return seen.oldest_ms > since_ms and seen.deviation < deviation
