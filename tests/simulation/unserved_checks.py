"""No bucket with a backlog waits for longer than it may while a consumer is there to serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.client._consumer.holding import Phase
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.subscription import Subscription
from anabranch.core.subscriptions.draining import (
    assignable,
)
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from simulation.scheduler import ViolationError
from simulation.segment_store import Place

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

LOOK_S = 0.5
SLACK_S = 4.0  # until a consumer finds its controller, and is answered


class UnservedChecks:
    """Sees what is served, whoever believes what; a new controller begins to count anew."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._since: dict[tuple[str, Place], float] = {}  # by subscription's group
        self._controllers: dict[str, tuple[str, int]] = {}

    def look(self) -> None:
        """To be called twice a second."""
        waiting: set[tuple[str, Place]] = set()
        for topic, subscription in self._world.subscriptions:
            waiting |= self._waiting(topic, subscription)
        now = self._world.sched.now
        bound_s = self._world.settings.timing.unserved_s + SLACK_S
        self._since = {each: self._since.get(each, now) for each in waiting}
        for (group, place), since in self._since.items():
            if now - since > bound_s:
                raise ViolationError(f"nobody has served {place} of {group} for {bound_s:.1f} s")

    def _waiting(self, name: str, subscription: str) -> set[tuple[str, Place]]:
        world = self._world
        truth = world.cluster.checks.truth
        topic, known = truth.topic(name), truth.subscription(name, subscription)
        there = [
            each
            for each in world.consumers
            if (each.topic, each.subscription) == (name, subscription) and each.is_in_session()
        ]
        if topic is None or known is None or not there or not self._is_controlled(name):
            return set()
        group = kafka_group("", name, subscription, known.created_offset)
        served = {
            place
            for each in there
            for place, holding in each.serving().items()
            if holding.phase is Phase.SERVING or holding.in_flight  # somebody works on it
        }
        found: set[tuple[str, Place]] = set()
        for part in assignable(topic.layout, known.drained):
            kafka = kafka_topic("", name, topic.incarnation, part)
            for place in ((kafka, bucket) for bucket in range(part.buckets)):
                if place not in served and self._has_backlog(name, subscription, known, place):
                    found.add((group, place))
        return found

    def _has_backlog(self, name: str, subscription: str, known: Subscription, place: Place) -> bool:
        partition = self._world.store.partitions.get(place)
        group = kafka_group("", name, subscription, known.group_offset)
        committed = self._world.store.believed(group, known.created_offset, place) or 0
        return partition is not None and len(partition.messages) > committed

    def _is_controlled(self, name: str) -> bool:
        """Whether the one who was the topic's controller before is it yet, and can act."""
        holder = controller_of(self._world.cluster.checks.truth, name)[1]
        process = next((p for p in self._world.cluster.processes if p.name == holder), None)
        if process is None or not process.alive or process.paused:
            return False
        if not self._world.hosts[holder].may_act(name):
            return False
        before = self._controllers.get(name)
        self._controllers[name] = (holder, process.life)
        return before == (holder, process.life)
