"""Splits and merges under load, in the middle of each of which Kafka's leaders change."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from anabranch import client as sdk
from support.kafka_brokers import KafkaBrokers
from support.leader_moves import LeaderMoves
from support.several_brokers import Reading
from support.steady_traffic import SteadyTraffic
from support.topic_cluster import TopicCluster
from support.traffic import stored, wrong
from support.waiting import eventually, until

# Three copies of everything, of which two must have a message before it is acknowledged.
THREE_COPIES = (
    "replicationFactor=3",
    "minInsyncReplicas=2",
    "scalableTopicEntryBucketBudget=8",
)
SAFE = {
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
}
_KEYS = [b"key-%d" % number for number in range(40)]
_PAUSE_S = 0.008  # of each producer, between two messages
_SPREAD = 250  # messages after the request, within which the leaders change at any moment
_SETTLED = 40  # messages, after a change, before the next one begins


class Moment(Enum):
    """When the leaders of the parents' partitions change."""

    SEALING = auto()  # once the producer hears of it
    ANY = auto()  # some messages after the request
    KILLED = auto()  # once the producer hears of the sealing; the broker is killed, and comes back


@dataclass
class Round:
    """A split or a merge: what happened when, and how long the slowest message took."""

    number: int
    moment: Moment
    moved: int  # partitions that have another leader
    is_between: bool  # SEALING and COMMIT, as the producer heard of them
    change_s: float  # from the request to the commit
    worst_s: float  # from sending to acknowledgement


@dataclass
class Proof:
    """What was found."""

    rounds: list[Round] = field(default_factory=list)
    sent: int = 0
    failed: list[str] = field(default_factory=list)
    wrong_when_stored: list[str] = field(default_factory=list)
    wrong_when_received: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [*self.failed, *self.wrong_when_stored, *self.wrong_when_received]


class _Scene:
    def __init__(
        self, brokers: KafkaBrokers, cluster: TopicCluster, topic: str, chance: random.Random
    ) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._topic = topic
        self._chance = chance
        self._moves = LeaderMoves(brokers.bootstrap_servers)

    async def round(
        self, number: int, moment: Moment, producer: sdk.Producer, traffic: list[SteadyTraffic]
    ) -> Round:
        active = await self._cluster.active(self._topic)
        merges = len(active) > 2 or (len(active) == 2 and number % 2 == 1)
        parents = active[-2:] if merges else active[:1]
        topics = [producer.layout.segments[each].kafka_topic for each in parents]
        await asyncio.to_thread(self._moves.prepare, topics)
        before = await asyncio.to_thread(self._moves.leaders, topics)
        since = time.monotonic()
        change = asyncio.create_task(
            self._cluster.merge(self._topic, *parents)
            if merges
            else self._cluster.split(self._topic, *parents)
        )

        def is_over() -> bool:
            return not producer.layout.parents_under_way and all(
                producer.layout.is_sealed(each) for each in parents
            )

        if moment is Moment.ANY:
            await _more(traffic, self._chance.randrange(_SPREAD), is_over)
        else:
            await until(lambda: producer.layout.sealing or is_over())
        is_between = producer.layout.sealing
        if moment is Moment.KILLED:
            moved = await self._killed(before)
        else:
            moved = await asyncio.to_thread(self._moves.go)
            is_between = is_between and not is_over()
        await until(is_over)
        change_s = time.monotonic() - since
        await asyncio.gather(change, return_exceptions=moment is Moment.KILLED)
        await _more(traffic, _SETTLED, lambda: False)
        await until(lambda: len(producer.layout.active) == len(active) + (-1 if merges else 1))
        worst_s = max(each.worst(since) for each in traffic)
        return Round(number, moment, moved, is_between, change_s, worst_s)

    async def _killed(self, leaders: dict[tuple[str, int], int]) -> int:
        """A broker that leads and is no controller is killed, and started when others lead."""
        victims = sorted({each for each in leaders.values() if each != 1})
        victim = self._chance.choice(victims or [2])
        lost = [place for place, leader in leaders.items() if leader == victim]
        broker = self._brokers.numbered(victim)
        await asyncio.to_thread(broker.kill)
        topics = {topic for topic, _ in leaders}

        def is_led_elsewhere() -> bool:
            told = self._moves.leaders(topics)
            return all(told[place] not in (victim, -1) for place in lost)

        await _until_told(is_led_elsewhere)
        await asyncio.to_thread(broker.start)
        await _until_told(lambda: self._moves.are_in_sync(topics, len(self._brokers.brokers)))
        return len(lost)


async def _until_told(holds: Callable[[], bool]) -> None:
    """As `until`, for what is asked of Kafka, which blocks."""
    await eventually(lambda: asyncio.to_thread(holds))


async def _more(traffic: list[SteadyTraffic], count: int, or_else: Callable[[], bool]) -> None:
    """Returns when so many more messages were acknowledged."""
    enough = sum(len(each.told) for each in traffic) + count
    await until(lambda: or_else() or sum(len(each.told) for each in traffic) >= enough)


async def changed_under(
    brokers: KafkaBrokers,
    cluster: TopicCluster,
    client: sdk.Client,
    topic: str,
    moments: list[Moment],
    chance: random.Random,
    tell: Callable[[Round], None] = lambda _: None,
) -> Proof:
    """A round for each of the moments, under the load of two producers and a consumer."""
    proof, scene = Proof(), _Scene(brokers, cluster, topic, chance)
    producers = [await client.create_producer(topic, linger_ms=0) for _ in range(2)]
    reading = Reading(await client.subscribe(topic, "billing"), repeats=True)
    traffic = [
        SteadyTraffic(producer, _KEYS[place::2], _PAUSE_S)
        for place, producer in enumerate(producers)
    ]
    await _more(traffic, _SETTLED, lambda: False)
    for number, moment in enumerate(moments):
        proof.rounds.append(await scene.round(number, moment, producers[0], traffic))
        tell(proof.rounds[-1])
    sent: dict[bytes, list[bytes]] = {}
    for each in traffic:
        await each.stop()
        sent |= each.sent
        proof.failed += [f"{place}: {error}" for place, error in each.failed.items()]
    proof.sent = sum(map(len, sent.values()))
    layout = max((each.layout for each in producers), key=lambda layout: layout.age)
    proof.wrong_when_stored = wrong(await asyncio.to_thread(stored, cluster.kafka, layout), sent)
    proof.wrong_when_received = wrong(await reading.all_of(sent), sent)
    return proof
