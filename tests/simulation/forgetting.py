"""What Kafka forgets, positions and unread messages, against the product's own `TopicSurveys`
and `PositionWatch`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from anabranch.broker.errors import DeadlineExceededError
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.position_watch import PositionWatch
from anabranch.broker.topics.subscriptions.surveys import TopicSurveys
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.errors import AnabranchError
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.core.topics.retention import Retention
from simulation.process import Process
from simulation.segment_store import Committed
from simulation.work import Work

if TYPE_CHECKING:
    from simulation.segment_store import Place
    from simulation.topic_host import TopicHost
    from simulation.topic_world import TopicWorld

LOOK_S = 0.7
LOOK_S_MAX = 8.0
KEPT_S = 6.0  # longer than a session and the margin after it
REMOVED_MS_MAX = 5_000  # how old messages are that retention takes


class _Keeping(TopicSurveys):
    busy_rounds = 1

    async def look(self, name: str) -> None:
        try:
            await super().look(name)
        except asyncio.CancelledError:
            raise DeadlineExceededError("it took too long") from None

    async def _retain(self, name: str, topic: ScalableTopic) -> None:
        """Kafka's own retention is no part of this."""


class _Watching(PositionWatch):
    async def round(self) -> None:
        try:
            await super().round()
        except asyncio.CancelledError:
            raise DeadlineExceededError("it took too long") from None


class _Owned:
    """The topics that a node controls."""

    def __init__(self, mine: Callable[[], list[str]]) -> None:
        self.names = mine

    async def follow(self) -> None:
        """They are known at any time."""


class Keepers:
    """The looks of one life of one process, as a controller."""

    def __init__(
        self,
        world: TopicWorld,
        process: Process,
        host: TopicHost,
        subscriptions: Subscriptions,
        positions: Any,
    ) -> None:
        self._world = world
        self._process = process
        self._host = host
        nobody: Any = None
        kept = Retention(math.inf, math.inf, math.inf)
        self._keeping = _Keeping(
            subscriptions,
            positions,
            nobody,
            kept,
            LOOK_S,
            process.local_now,
            lambda *_: None,
        )
        owned: Any = _Owned(self._mine)
        self._watch = _Watching(subscriptions, positions, owned, process.local_now)
        silent = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])
        self._keeping._log = self._watch._log = silent
        self._watch_at = 0.0
        self._is_watching = False
        self._looking: set[str] = set()
        self._next: dict[str, float] = {}

    def advance(self) -> None:
        """Looks at every topic whose turn it is."""
        if not self._world.plan.forgets:
            return
        now = self._process.local_now()
        if now >= self._watch_at and not self._is_watching:
            self._is_watching, self._watch_at = True, now + LOOK_S
            work = Work(self._watch.round(), self._watched)
            self._process.later(LOOK_S_MAX, work.cancel)
        for name in self._mine():
            if name in self._looking or now < self._next.get(name, 0.0):
                continue
            self._looking.add(name)
            self._next[name] = now + LOOK_S
            work = Work(self._keeping.look(name), partial(self._ended, name))
            self._process.later(LOOK_S_MAX, work.cancel)

    def _mine(self) -> list[str]:
        """The open topics that it controls now."""
        found = ((name, self._process.core.state.topic(name)) for name in self._world.topics)
        return [
            name
            for name, topic in found
            if topic is not None and topic.is_open and self._host.may_act(name)
        ]

    def _watched(self, _: None, error: AnabranchError | None) -> None:
        self._is_watching = False

    def _ended(self, name: str, _: None, error: AnabranchError | None) -> None:
        self._looking.discard(name)


class Forgetting:
    """Kafka forgets, now and then, positions that the log has had for a while; or a stranger resets
    them.

    And its retention takes messages, read or not.

    It keeps one for a day at least, so whoever serves a bucket then was granted it with what the
    log has: a grant from before that has long lapsed.
    """

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._known_since: dict[tuple[str, Place, int], float] = {}
        self.forgotten = 0
        self.kept = 0  # how often a controller has told Kafka what the log has

    def start(self, interval_s: Callable[[], float]) -> None:
        """Goes on to the end of the run, when the faults are over, too."""
        if self._world.plan.forgets:
            self._world.sched.after(interval_s(), partial(self._forget, interval_s))
        if self._world.plan.removes:
            self._world.sched.after(interval_s(), partial(self._remove, interval_s))

    def _remove(self, interval_s: Callable[[], float]) -> None:
        if self._world.faults_over:
            return
        self._world.sched.after(interval_s(), partial(self._remove, interval_s))
        rng, store = self._world.sched.rng, self._world.store
        full = [p for p, each in store.partitions.items() if each.begin < len(each.messages)]
        if full:
            old_ms = rng.randrange(REMOVED_MS_MAX)
            store.remove(rng.choice(full), self._world.cluster.log_ms() - old_ms)

    def _forget(self, interval_s: Callable[[], float]) -> None:
        self._world.sched.after(interval_s(), partial(self._forget, interval_s))
        now = self._world.sched.now
        truth, committed = self._world.cluster.checks.truth, self._world.store.committed
        for name in self._world.topics:
            topic = truth.topic(name)
            for subscription, known in truth.subscriptions(name) if topic is not None else ():
                group = kafka_group("", name, subscription, known.group_offset)
                for part in topic.segments if topic is not None else ():
                    kafka = kafka_topic("", name, topic.incarnation, part) if topic else ""
                    for bucket in range(part.buckets):
                        key = (group, (kafka, bucket))
                        at = self._world.store.believed(group, known.created_offset, key[1])
                        if not at or known.position(part.segment_id, bucket) < at:
                            continue
                        since = self._known_since.setdefault((*key, at), now)
                        if now - since >= KEPT_S:
                            del committed[key]
                            self._world.checks.running.overwritten(*key)
                            self.forgotten += 1
                            if self.forgotten % 2:  # it is a stranger who has put it somewhere else
                                committed[key] = Committed(at * (self.forgotten % 3))
