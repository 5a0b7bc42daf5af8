"""What happens to a Kafka topic that is adopted while nodes or brokers are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from anabranch.client import Client, Producer
from anabranch.core.bundles.guards import controller_of
from anabranch.core.topics.retention import unsettled_s
from support import channel
from support.doomed_node import Point
from support.giving_back import SOON
from support.kafka_brokers import KafkaBrokers
from support.local_topic import LocalTopic, NodeProcess, local_topic
from support.old_topics import PARTITIONS, SETTINGS, make, new_name, settings_of
from support.quiet import QUIET
from support.several_brokers import HalfSealed, at_once, leaders, under_load
from support.there import there
from support.waiting import WAIT_S, until

pytestmark = [pytest.mark.long, pytest.mark.lasting]

_SEGMENTS = 4


@pytest.fixture
def old(brokers: KafkaBrokers) -> str:
    """A Kafka topic that others have made, with a copy on each broker."""
    name = new_name()
    make(brokers.bootstrap_servers, name, 3, min_insync_replicas="2")
    return name


def is_cut_over(at: LocalTopic) -> bool:
    topic = there(at.node.runtime.view.topic(at.topic))
    return len([part for part in topic.segments if part.is_active]) == _SEGMENTS


def failed(request: asyncio.Task[httpx.Response]) -> bool:
    return request.done() and request.result().is_error


_PREPARE = f"/prepare?segmentCount={_SEGMENTS}"


async def under_load_of(
    brokers: KafkaBrokers,
    client: Client,
    at: LocalTopic,
    point: Point,
    disturb: Callable[[NodeProcess, Producer], Awaitable[None]],
    ready: Callable[[], Awaitable[None]] = at_once,
) -> None:
    """As `under_load`, whose first message is sent when the doomed node controls the topic."""
    async with AsyncExitStack() as stack:
        victims: list[NodeProcess] = []

        async def doomed() -> None:
            await ready()
            victims.append(await stack.enter_async_context(at.controller(point)))

        async def disturbed(producer: Producer) -> None:
            await disturb(victims[0], producer)

        servers = brokers.bootstrap_servers
        await under_load(servers, client, at.topic, disturbed, repeats=True, ready=doomed)


# The last logged step alone says what a controller does next. So a point of each step is enough,
# and of the sealing its begin and its end: below, giving back is broken off in between.
@pytest.mark.parametrize(
    "point",
    [Point.TOPICS_WANTED, Point.SEALING_LOGGED, Point.SEALED],
    ids=["begun", "sealing", "before its commit"],
)
async def test_the_next_controller_goes_on_with_a_cut_over_under_load(
    brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path, old: str, point: Point
) -> None:
    """Kafka's topic is as it was until the sealing is logged, and stays when all is forgotten."""
    kafka = brokers.bootstrap_servers
    before = await asyncio.to_thread(settings_of, kafka, old)

    def is_as_it_was() -> None:
        assert settings_of(kafka, old) == before

    async with local_topic(brokers, topic_prefix, tmp_path, 1, **SETTINGS) as at:
        at.topic = f"public/default/{old}"
        if point is Point.TOPICS_WANTED:
            adopt = f"/adopt?kafkaTopic={old}&partitioner=murmur2"
            await at.asked(point, "POST", adopt, is_as_it_was)
        else:
            await at.node.operations.adoptions.adopt(at.topic, old, "murmur2")
        await until(lambda: there(at.node.runtime.view.topic(at.topic)).is_open)
        is_as_it_was()

        async def disturb(victim: NodeProcess, producer: Producer) -> None:
            dead = () if point is Point.SEALED else (is_as_it_was,)
            await at.asked_of(victim, "POST", _PREPARE, *dead)
            assert is_cut_over(at)
            await until(lambda: len(producer.layout.active) == _SEGMENTS)

        async with Client(at.node.settings.service_url) as client:
            await under_load_of(brokers, client, at, point, disturb)
        await at.node.operations.topics.delete(at.topic, force=True)
        assert len(await asyncio.to_thread(leaders, kafka, old)) == PARTITIONS


@pytest.mark.parametrize(
    "point", [Point.ONE_PARTITION_REFUSES, Point.OPENED], ids=["half sealed", "opened"]
)
async def test_the_next_controller_goes_on_with_giving_back_under_load(
    brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path, old: str, point: Point
) -> None:
    kafka = brokers.bootstrap_servers
    before = await asyncio.to_thread(settings_of, kafka, old)
    async with local_topic(brokers, topic_prefix, tmp_path, 1, **SETTINGS, **SOON) as at:
        at.topic = f"public/default/{old}"
        await at.node.operations.adoptions.adopt(at.topic, old, "murmur2")
        await at.node.operations.topics.prepare(at.topic, _SEGMENTS, None, keeps=False)

        view = at.node.runtime.view

        async def settled() -> None:
            await until(lambda: 0 in there(view.subscription(at.topic, "billing")).drained)
            sealed = there(there(view.topic(at.topic)).cut_over)
            settled_s = at.node.operations.topics.access.service.settings.settled_s
            core = at.node.runtime.core
            await until(lambda: not unsettled_s(sealed, core.log_ms, settled_s), WAIT_S)

        async def disturb(victim: NodeProcess, producer: Producer) -> None:
            await at.asked_of(victim, "POST", "/give-back?leaveMiddle=true")
            adopted = there(there(view.topic(at.topic)).adopted)
            assert adopted.legacy_topic == old
            await until(lambda: len(producer.layout.active) == 1)

        async with Client(at.node.settings.service_url) as client:
            await under_load_of(brokers, client, at, point, disturb, settled)
    assert await asyncio.to_thread(settings_of, kafka, old) == before


async def test_a_controller_that_dies_after_the_commit_leaves_a_topic_that_goes_on(
    brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path, old: str
) -> None:
    async with local_topic(brokers, topic_prefix, tmp_path, 1, **SETTINGS) as at:
        at.topic = f"public/default/{old}"
        await at.node.operations.adoptions.adopt(at.topic, old, "murmur2")

        async def disturb(victim: NodeProcess, producer: Producer) -> None:
            async with httpx.AsyncClient(timeout=WAIT_S) as http:
                url = f"{victim.url}/admin/v2/scalable/{at.topic}{_PREPARE}"
                preparing = asyncio.create_task(http.post(url))
                # Its answer may come before this process has read what it logged.
                await until(lambda: is_cut_over(at) or failed(preparing))
                assert is_cut_over(at), preparing.result().text
                await asyncio.to_thread(victim.kill)
                await asyncio.gather(preparing, return_exceptions=True)
            await until(
                lambda: controller_of(at.node.runtime.view, at.topic)[1] == at.node.runtime.core.me
            )
            await at.node.operations.topics.split(at.topic, 1)
            await until(lambda: len(producer.layout.active) == _SEGMENTS + 1)

        async with Client(at.node.settings.service_url) as client:
            await under_load_of(brokers, client, at, Point.TOPICS_DELETED, disturb)


async def test_a_broker_is_killed_in_the_middle_of_a_cut_over_and_comes_back(
    brokers: KafkaBrokers,
    topic_prefix: str,
    tmp_path: Path,
    old: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    victim, kafka = brokers.numbered(2), brokers.bootstrap_servers
    seal = HalfSealed(monkeypatch)
    known = partial(AdminClient({**QUIET, "bootstrap.servers": kafka}).list_topics, timeout=WAIT_S)
    try:
        async with local_topic(brokers, topic_prefix, tmp_path, 1, **SETTINGS) as at:
            at.topic = f"public/default/{old}"
            await at.node.operations.adoptions.adopt(at.topic, old, "murmur2")

            async def disturb(producer: Producer) -> None:
                preparing = asyncio.create_task(
                    at.node.operations.topics.prepare(at.topic, _SEGMENTS, None, keeps=False)
                )
                assert await asyncio.to_thread(seal.reached.wait, WAIT_S)
                await asyncio.to_thread(victim.kill)
                seal.go_on.set()
                missed = partial(channel.until, lambda: 2 not in known().brokers, "it is missed")
                await asyncio.to_thread(missed)
                await asyncio.to_thread(victim.start)
                await asyncio.gather(preparing, return_exceptions=True)
                await until(lambda: len(producer.layout.active) == _SEGMENTS, WAIT_S)

            async with Client(at.node.settings.service_url) as client:
                await under_load(kafka, client, at.topic, disturb, repeats=True)
    finally:
        seal.go_on.set()
        if not victim.is_running:
            victim.start()
