"""Clients of lists of topics, simulated: the SDK's own watches and connections, on loops of their
own, and clients that take nothing from their sockets.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from anabranch.client._errors import ClientError
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.topic_list import ListChange, TopicSelection
from anabranch.core.errors import AnabranchError
from anabranch.wire.anabranch_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    ServerError,
)
from anabranch.wire.client import ClientConnection
from anabranch.wire.errors import RefusedError
from simulation.event_loop import SimulatedLoop
from simulation.scheduler import Action, Life

if TYPE_CHECKING:
    from simulation.list_world import ListWorld

START_S = 8.0
ANSWER_S = 60.0  # longer than a node may take
SLACK_S = 3.0


class ListClient(Life):
    """A client's process, with one event loop in each of its lives."""

    def __init__(self, world: ListWorld, number: int) -> None:
        super().__init__(world.sched)
        self.number = number
        self.address = f"10.0.0.{number}"
        self.cut_until = 0.0
        self.reads = True
        self.is_proxied = False  # it reaches no node itself
        self.alive = False
        self.disturbed_at = 0.0  # when its last fault is over
        self.loop: SimulatedLoop
        self._world = world
        self._rate = world.plan.clock_rates[number % len(world.plan.clock_rates)]

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.number}#{self.life}"

    def start(self) -> None:
        """Begins its work."""
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self._stop.end()
        self.loop = self._world.client_loop(self)
        with self.loop.running():
            self.begin()

    def begin(self) -> None:
        """Begins one life, in its loop."""
        self.loop.create_task(self.work())

    def crash(self) -> None:
        """Its process ends."""
        self.alive = False
        self.life += 1
        self._world.client_ended(self)

    def run_in(self, life: int, action: Action) -> None:
        if self.alive:
            super().run_in(life, action)

    def local_now(self) -> float:
        return 1_000.0 + self._sched.now * self._rate

    def in_life(self) -> partial[None]:
        """Runs something in the process as it is now, if it is the same one still."""
        return partial(self.run_in, self.life)

    def pause(self, duration_s: float) -> None:
        super().pause(duration_s)
        self.disturbed_at = max(self.disturbed_at, self._stop.until)

    def cut(self, duration_s: float) -> None:
        """Nothing passes between it and any node for a while."""
        self.cut_until = self._sched.now + duration_s
        self.disturbed_at = max(self.disturbed_at, self.cut_until)

    async def work(self) -> None:
        """What it does, for as long as it lives."""
        raise NotImplementedError

    async def _rest(self, mean_s: float) -> None:
        await asyncio.sleep(self._sched.rng.expovariate(1.0 / mean_s))


class Follower(ListClient):
    """Follows a selection by the SDK's own watch."""

    def __init__(self, world: ListWorld, number: int, selection: TopicSelection, url: str) -> None:
        super().__init__(world, number)
        self.selection = selection
        self.url = url
        self.known: frozenset[str] | None = None  # what it has been told, put together
        self.changes = 0

    async def work(self) -> None:
        while True:
            watch = TopicListWatch(Nodes(self.url), self.selection)
            self.known = None
            watch.listeners.append(partial(self._changed, watch))
            try:
                known = await watch.start(START_S)
            except ClientError:
                await self._rest(1.0)
                continue
            if self.known is None:  # nothing came in between
                self.known = known
            self._agrees(watch)
            return

    def _changed(self, watch: TopicListWatch, change: ListChange) -> None:
        self.changes += 1
        if self.known is None:  # the first list was told in this very turn
            self.known = watch.topics
            return
        added, removed = set(change.added), set(change.removed)
        if added & self.known or removed - self.known:
            self._world.wrong(f"{self} is told twice that {added & self.known or removed} changed")
        self.known = (self.known - removed) | added
        self._agrees(watch)

    def _agrees(self, watch: TopicListWatch) -> None:
        if self.known != watch.topics:
            self._world.wrong(f"the changes that {self} was told do not lead to what it has")


class Lister(ListClient):
    """Takes lists, and goes away in the midst of it at times."""

    async def work(self) -> None:
        rng = self._sched.rng
        while not self._world.faults_over:
            try:
                connection = await self._world.connected(self)
            except AnabranchError:
                await self._rest(1.0)
                continue
            for _ in range(rng.choice((1, 3, 8))):
                asked = asyncio.ensure_future(self._ask(connection))
                if rng.random() < 0.2:
                    await asyncio.wait([asked], timeout=rng.uniform(0.0, 0.05))
                    break
                await asyncio.wait([asked])
                if not connection.is_open:
                    break
                await self._rest(0.3)
            connection.close("enough")
            await self._rest(0.5)

    async def _ask(self, connection: ClientConnection) -> None:
        world, rng = self._world, self._sched.rng
        selection = rng.choice(world.by_name)
        asked_at, answering = self._sched.now, world.answering(connection.address)
        lives, (first, _) = answering.lives, answering.read
        asked = CommandGetTopicsOfNamespace(
            namespace=selection.namespace, mode=CommandGetTopicsOfNamespace.ALL
        )
        if selection.pattern:
            asked.topics_pattern = selection.wire_pattern
        try:
            answer = await connection.request(asked, ANSWER_S)
        except RefusedError as error:
            self._refused(error)
            return
        except AnabranchError:
            return
        if answering.lives != lives:
            return
        if not self.is_proxied:
            self._timely(asked_at)
        told = answer.getTopicsOfNamespaceResponse
        _, last = answering.read
        names, told_hash = list(told.topics), told.topics_hash
        world.judged(partial(world.checks.told, selection, names, told_hash, first, last))

    def _timely(self, asked_at: float) -> None:
        """Who reads is answered, whatever others do."""
        took_s = self._sched.now - asked_at
        if took_s > self._world.answered_within_s and self._world.was_calm(self, asked_at):
            self._world.wrong(f"{self} was answered after {took_s:.1f} s")

    def _refused(self, error: RefusedError) -> None:
        self._world.turned_away += 1
        is_full = error.code in (ServerError.TooManyRequests, ServerError.ServiceNotReady)
        # More than all there is: the limits may be that small here.
        if not is_full and "larger than maxPermits" not in error.reason:
            self._world.wrong(f"{self} was refused: {error.code} {error.reason}")


class Mute(ListClient):
    """Asks for lists and watches, and takes nothing that comes."""

    put_off = 0  # how often a node ended its connection

    async def work(self) -> None:
        world, rng = self._world, self._sched.rng
        while not world.faults_over:
            self.reads = True
            try:
                connection = await world.connected(self)
            except AnabranchError:
                await self._rest(1.0)
                continue
            world.stop_reading(self)
            for number in range(1, rng.choice((2, 4, 8))):
                selection = rng.choice(world.by_name)
                if rng.random() < 0.5:
                    connection.send(
                        CommandGetTopicsOfNamespace(
                            request_id=number,
                            namespace=selection.namespace,
                            mode=CommandGetTopicsOfNamespace.ALL,
                        )
                    )
                else:
                    connection.send(
                        CommandWatchTopicList(
                            request_id=number,
                            watcher_id=number,
                            namespace=selection.namespace,
                            topics_pattern=f"{selection.namespace}/.*",
                        )
                    )
            await asyncio.wait([connection.closed], timeout=rng.uniform(1.0, 30.0))
            self.put_off += connection.closed.done()
            connection.abort("enough")
            await self._rest(1.0)
