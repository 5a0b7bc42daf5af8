"""How full batches are at full speed: by bucket, all in one, and each key by itself."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import cache

import msgspec

from anabranch.client import Client, ProducerSettings
from bench.clients.bare import BareKafka
from bench.clients.load import BATCH, KEYS
from bench.figure import Measured
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_BUCKETS = 4  # of a new topic's only segment
_LINGER_MS = 200.0  # long enough for four batches to fill at full speed
_DEFAULT_MS = ProducerSettings().linger_ms
_VALUE = b"x" * 1_000
_KEYS = KEYS[:1_000]  # each has a partition of its own where batches are made by key
_TURNS = 3
_STATS_MS = 250
_DEADLINE_S = 30.0
_ENOUGH = 0.99  # librdkafka's counts may lack a batch or two
_GOAL_OF_ONE = 0.9
_GOAL_BY_KEY = 5.0


class _Window(msgspec.Struct):
    """A sum of librdkafka's, and of how many, since its statistics before."""

    sum: int
    cnt: int


class _Topic(msgspec.Struct):
    batchcnt: _Window


class _Statistics(msgspec.Struct):
    topics: dict[str, _Topic]


class _BatchCount:
    """Adds up the batches and messages that librdkafka tells of one producer."""

    def __init__(self) -> None:
        self.batches = 0
        self.messages = 0

    def take(self, statistics: str) -> None:
        """The next statistics, JSON."""
        for topic in msgspec.json.decode(statistics, type=_Statistics).topics.values():
            self.batches += topic.batchcnt.cnt
            self.messages += topic.batchcnt.sum


def of_one(place: Place) -> Measured:
    """Against a producer that knows no buckets: one partition takes everything."""
    return _judged(place, "unbucketed", "bare confluent-kafka, one partition", _GOAL_OF_ONE)


def by_key(place: Place) -> Measured:
    """Against a producer whose batches hold one key each, of 1,000 keys."""
    what = f"bare confluent-kafka, {len(_KEYS)} keys, a partition for each"
    return _judged(place, "by key", what, _GOAL_BY_KEY)


def _judged(place: Place, other: str, what: str, goal: float) -> Measured:
    means = _means(place)
    ours, theirs = statistics.median(means["by bucket"]), statistics.median(means[other])
    return Measured(
        ours,
        "messages",
        ours / theirs,
        goal,
        at_least=True,
        limit=theirs,
        limit_what=what,
        details={
            "messages of a batch": means,
            "buckets": _BUCKETS,
            "value_bytes": len(_VALUE),
            "linger_ms": _LINGER_MS,
        },
    )


@cache
def _means(place: Place) -> dict[str, list[float]]:
    """Messages of a batch, mean of each run, in turn."""
    count = 100_000 if place.quick else 200_000
    means: dict[str, list[float]] = {}

    def note(what: str, mean: float) -> None:
        means.setdefault(what, []).append(mean)

    for turn in range(1 if place.quick else _TURNS):
        for linger_ms, how in ((_LINGER_MS, ""), (_DEFAULT_MS, ", default linger")):
            with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
                ours = asyncio.run(_bucketed(place, topic, count, linger_ms))
                note(f"by bucket{how}", ours)
                note(f"unbucketed{how}", _bare(kafka, 1, count, linger_ms))
                if turn == 0 and not how:  # once: it takes long to make the topic
                    note("by key", _bare(kafka, len(_KEYS), count, linger_ms))
    return means


async def _bucketed(place: Place, topic: TopicUnderTest, count: int, linger_ms: float) -> float:
    async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
        producer = await client.create_producer(topic.name, linger_ms=linger_ms)
        await producer.send_many((key, _VALUE) for key in _KEYS * (count // len(_KEYS)))
        await producer.flush()
        stats = producer.stats()
    return sum(each.messages for each in stats) / sum(each.batches for each in stats)


def _bare(kafka: BareKafka, partitions: int, count: int, linger_ms: float) -> float:
    counted = _BatchCount()
    topic = kafka.topic(partitions)
    producer = kafka.producer(
        **{
            "linger.ms": linger_ms,
            "statistics.interval.ms": _STATS_MS,
            "stats_cb": counted.take,
            "queue.buffering.max.kbytes": 65_536,  # as the SDK's
        }
    )
    producer.list_topics(topic, _DEADLINE_S)
    deadline = time.monotonic() + _DEADLINE_S
    for number in range(count):
        place = number % len(_KEYS)
        while True:
            try:
                producer.produce(topic, _VALUE, _KEYS[place], place % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if number % BATCH == 0:
            producer.poll(0)
    producer.flush(_DEADLINE_S)
    while counted.messages < _ENOUGH * count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{counted.messages} of {count} messages were counted")
        producer.poll(0.05)
    return counted.messages / counted.batches
