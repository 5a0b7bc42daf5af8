"""Whole nodes without Kafka: runtimes that share a log in memory, in one event loop.

Leases, silence and consumers' sessions are measured on the loop's own clock: with `support.steady`
no stall of the machine breaks one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.operations import Operations
from anabranch.broker.proposals import OnAppended
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings, load_settings
from anabranch.broker.topics.build import TopicParts
from anabranch.channel.codec import encode_record, read_entry
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.log.entries import Entry
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.sessions.lease import Heartbeat
from anabranch.wire import clock
from support.memory_positions import MemoryPositions
from support.memory_segments import MemorySegments
from support.waiting import WAIT_S as WAIT_S
from support.waiting import until as until

FAST = {"heartbeatIntervalMillis": 50, "leaseMillis": 1_500, "livenessTimeoutMillis": 2_000}


class MemoryView(MemoryReplica):
    """A replica in memory that reads log entries as the RocksDB view does."""

    def read_batch(self, entries: Sequence[Entry]) -> list[Folded]:
        return [self.read(read_entry(e.key, e.value), e.offset, e.timestamp_ms) for e in entries]

    def horizon_reached(self, next_offset: int) -> None:
        self.horizon = next_offset


class MemoryNode:
    """A runtime, its operations, and its connection to the shared log."""

    def __init__(self, cluster: MemoryCluster, settings: Settings) -> None:
        self.settings = settings
        self.view = MemoryView()
        self.metrics = Metrics()
        self.connected = True
        self.is_behind = False  # it reads nothing of the log, and does not notice
        self.asked_ends = 0  # how often it has asked where the log ends
        self.failing = 0  # appends still to be reported as failed
        self.failure: Exception = ConnectionError("the append failed")
        self.runtime = Runtime(
            msgspec.structs.replace(
                settings.node_settings(),
                authorizes=bool(cluster.superusers),
                superusers=cluster.superusers,
            ),
            self.view,
            self._append,
            self._publish,
            self.metrics,
            self._ask_end,
        )
        doubles: Any = cluster  # of what asks Kafka
        parts = TopicParts(
            lambda: doubles.segments,
            lambda: doubles.positions,
            lambda topic, incarnation: cluster.loads.get(topic, {}),
            doubles.survey,
        )
        self.operations = Operations(self.runtime, settings, parts)
        self.cluster = cluster

    @property
    def id(self) -> str:
        return self.runtime.core.me

    def _append(self, records: Iterable[tuple[Record, OnAppended]]) -> None:
        for record, done in records:
            if self.failing:
                self.failing -= 1
                done(self.failure)
            elif self.connected:
                self.cluster.append(record)
                done(None)

    def _publish(self, beat: Heartbeat, acked: Callable[[Heartbeat], None]) -> None:
        if self.connected:
            self.cluster.publish(beat)
            acked(beat)

    async def _ask_end(self) -> int:
        if not self.connected:
            raise KafkaUnreachableError("Kafka did not answer in time")
        self.asked_ends += 1
        await asyncio.sleep(0)
        return len(self.cluster.entries)

    def pump(self) -> None:
        if self.connected and not self.is_behind:
            fresh = self.cluster.entries[self.view.next_offset :]
            if fresh:
                self.runtime.received(fresh)


class MemoryCluster:
    """The log, the heartbeats, and the nodes that read them."""

    def __init__(self, superusers: tuple[str, ...] = ()) -> None:
        self.superusers = superusers  # of nodes that ask who may do what; none: they do not ask
        self.entries: list[Entry] = []
        self.nodes: list[MemoryNode] = []
        self.segments = MemorySegments()
        self.positions = MemoryPositions(self.segments)
        self.surveys: dict[str, TopicSurvey] = {}  # of Kafka topics that others have made
        # By topic and segment; None: not read yet.
        self.loads: dict[str, dict[int, SegmentLoad] | None] = {}
        self._loop = asyncio.get_running_loop()
        self.ahead_s = time.time() - self._loop.time()  # of the nodes' clock: the log has its own

    def survey(self, topic: str, _seconds: float) -> TopicSurvey:
        """What a node finds of a Kafka topic."""
        return self.surveys[topic]

    def node(self, number: int, **settings: object) -> MemoryNode:
        """A node that is not started yet."""
        named = {"advertisedAddress": f"b{number}", "webServicePort": 8080, **FAST, **settings}
        return MemoryNode(self, load_settings(None, {}, named))

    async def start(self, node: MemoryNode) -> MemoryNode:
        """The node catches up and takes part."""
        self.nodes.append(node)
        node.pump()
        node.runtime.joined()
        await until(lambda: node.runtime.has_lease)
        return node

    async def controller(self, topic: str = "public/default/orders") -> MemoryNode:
        """The node that looks after a topic."""
        located = await self.nodes[0].operations.topics.access.find_controller(topic)
        return next(node for node in self.nodes if node.id == located.broker)

    async def create(self, segments: int = 1) -> MemoryNode:
        """The topic public/default/orders; its controller."""
        node = await self.controller()
        await node.operations.topics.create("public/default/orders", segments, {})
        return node

    @property
    def log_ms(self) -> int:
        """Now, by the log's clock."""
        return round((self._loop.time() + self.ahead_s) * 1000)

    def append_raw(self, key: bytes, value: bytes) -> None:
        self.entries.append(Entry(len(self.entries), self.log_ms, key, value, None))
        for node in self.nodes:
            self._loop.call_soon(node.pump)

    def append(self, record: Record) -> None:
        self.append_raw(record.key.encode(), encode_record(record))

    def publish(self, beat: Heartbeat) -> None:
        for node in self.nodes:
            if node.connected:
                self._loop.call_soon(node.runtime.heard, [(beat, self.log_ms)])

    def tick(self) -> None:
        for node in self.nodes:
            if not node.runtime.ended.done():
                node.pump()
                node.runtime.tick()


@asynccontextmanager
async def memory_cluster(count: int = 3, **settings: object) -> AsyncIterator[MemoryCluster]:
    """`count` nodes that serve, all hearing of each other."""
    async with _serving(MemoryCluster(), count, settings) as cluster:
        yield cluster


@asynccontextmanager
async def asking_cluster(
    superusers: tuple[str, ...], **settings: object
) -> AsyncIterator[MemoryCluster]:
    """One node that asks who may do what."""
    async with _serving(MemoryCluster(superusers), 1, settings) as cluster:
        yield cluster


@asynccontextmanager
async def _serving(
    cluster: MemoryCluster, count: int, settings: Mapping[str, object]
) -> AsyncIterator[MemoryCluster]:

    async def ticks() -> None:
        while True:
            cluster.tick()
            await asyncio.sleep(0.005)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", asyncio.get_running_loop().time)
        ticking = asyncio.create_task(ticks())
        try:
            for number in range(1, count + 1):
                await cluster.start(cluster.node(number, **settings))
            await until(lambda: all(len(n.operations.brokers()) == count for n in cluster.nodes))
            await until(lambda: all(n.operations.leader() for n in cluster.nodes))
            yield cluster
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            for node in cluster.nodes:
                node.operations.topic_list_limiter.close()
                await node.operations.topics.stop()
