"""The load of segments, simulated: what each broker knows of it, and when.

Whoever controls a topic samples its segments and writes what has changed; the records reach each
broker with a delay of its own, and none are written while nobody can.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from anabranch.core.autoscale.load import Rates, SegmentLoad, changed
from anabranch.core.autoscale.meter import RollingRates
from anabranch.core.autoscale.schedule import policy_of
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.topics.kafka_names import kafka_topic

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.topic_world import TopicWorld

SAMPLE_S = 0.5
WINDOW_S = 3.0
CHANGE_MIN = 0.25
LAG_S_MAX = 1.0
MESSAGE_BYTES = 100.0
SHAPES = ("constant", "rising", "falling", "wave", "pulses")

Key = tuple[str, int, int]  # topic, incarnation, segment id


class LoadShape(msgspec.Struct, frozen=True):
    """How busy producers are over time, as a share of their full speed."""

    kind: str
    period_s: float  # of a wave and of pulses; else until the rise or fall is over

    def at(self, now: float) -> float:
        turn = now / self.period_s
        match self.kind:
            case "rising":
                return min(1.0, turn)
            case "falling":
                return max(0.0, 1.0 - turn)
            case "wave":
                return 0.5 - 0.5 * math.cos(2.0 * math.pi * turn)
            case "pulses":
                return 1.0 if turn % 1.0 < 0.5 else 0.0
            case _:
                return 1.0


def draw_shape(rng: random.Random) -> LoadShape:
    return LoadShape(rng.choice(SHAPES), rng.choice((6.0, 12.0, 25.0)))


class Loads:
    """The load records of all topics, and the meters that they come from."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._meters: dict[Key, RollingRates] = {}
        self._written: defaultdict[Key, list[tuple[float, SegmentLoad]]] = defaultdict(list)
        self._lags: dict[str, float] = {}

    def start(self) -> None:
        self._world.sched.after(SAMPLE_S, self._sample)

    # --- what brokers know ----------------------------------------------------------------

    def process_started(self, process: Process) -> None:
        self._lags[process.name] = self._world.sched.rng.uniform(0.0, LAG_S_MAX)

    def known(self, process: Process, topic: str, incarnation: int) -> dict[int, SegmentLoad]:
        """The records that have reached a broker."""
        return self._as_of(self._world.sched.now - self._lags[process.name], topic, incarnation)

    def newest(self, topic: str, incarnation: int) -> dict[int, SegmentLoad]:
        """The records as they stand."""
        return self._as_of(self._world.sched.now, topic, incarnation)

    def _as_of(self, time: float, topic: str, incarnation: int) -> dict[int, SegmentLoad]:
        found = {}
        for (name, number, segment_id), written in self._written.items():
            if (name, number) == (topic, incarnation):
                seen = [load for at, load in written if at <= time]
                if seen:
                    found[segment_id] = seen[-1]
        return found

    # --- who writes it --------------------------------------------------------------------

    def _sample(self) -> None:
        world = self._world
        world.sched.after(SAMPLE_S, self._sample)
        truth = world.cluster.checks.truth
        processes = {each.name: each for each in world.cluster.processes}
        for name in world.topics:
            topic = truth.topic(name)
            process = processes.get(controller_of(truth, name)[1])
            if topic is None or process is None or not process.alive or process.paused:
                continue
            if not process.link.works("sends"):
                continue
            broker = world.settings.auto_scale.policy
            negligible = policy_of(truth, name, topic, broker).policy.negligible
            for part in topic.layout.active:
                self._measure(name, topic, part, negligible)

    def _measure(
        self, name: str, topic: ScalableTopic, part: SegmentInfo, negligible: Rates
    ) -> None:
        key = (name, topic.incarnation, part.segment_id)
        now = self._world.sched.now
        totals = self._totals(kafka_topic("", name, topic.incarnation, part), part)
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = RollingRates(WINDOW_S, now, totals, began=now)
        meter.sample(now, totals)
        came, went = meter.rates()
        rates = (came, came * MESSAGE_BYTES, went, went * MESSAGE_BYTES)
        written = self._written[key]
        if changed(written[-1][1].rates if written else None, rates, CHANGE_MIN, negligible):
            written.append((now, _load(rates, self._world.cluster.log_ms())))

    def _totals(self, kafka: str, part: SegmentInfo) -> tuple[int, int]:
        """Messages in and out, of all buckets."""
        places = [(kafka, bucket) for bucket in range(part.buckets)]
        partitions = self._world.store.partitions
        came = sum(len(partitions[place].messages) for place in places if place in partitions)
        return came, sum(self._world.checks.deliveries[place] for place in places)


def _load(rates: Rates, now_ms: int) -> SegmentLoad:
    return SegmentLoad(*rates, now_ms)
