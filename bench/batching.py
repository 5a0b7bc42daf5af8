"""How full batches are at full speed: by bucket, all in one, and each key by itself."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import cache

from anabranch.client import Client
from anabranch.client.batches import BatchCount
from bench.bare import BareKafka
from bench.figure import Measured
from bench.load import BATCH, KEYS
from bench.place import Place
from bench.scalable import TopicUnderTest

_BUCKETS = 4  # of a new topic's only segment
_LINGER_MS = 100.0  # long enough for four batches to fill at full speed
_VALUE = b"x" * 1_000
_KEYS = KEYS[:200]  # each has a partition of its own where batches are made by key
_TURNS = 3
_STATS_MS = 250
_DEADLINE_S = 30.0
_GOAL_OF_ONE = 0.9
_GOAL_BY_KEY = 5.0


def of_one(place: Place) -> Measured:
    """Against a producer that knows no buckets: one partition takes everything."""
    return _judged(place, "unbucketed", "bare confluent-kafka, one partition", _GOAL_OF_ONE)


def by_key(place: Place) -> Measured:
    """Against a producer whose batches hold one key each, of 200 keys."""
    what = f"bare confluent-kafka, {len(_KEYS)} keys, a partition for each"
    return _judged(place, "by key", what, _GOAL_BY_KEY)


def _judged(place: Place, other: str, what: str, goal: float) -> Measured:
    means = _means(place)
    pairs = zip(means["by bucket"], means[other], strict=True)
    return Measured(
        statistics.median(means["by bucket"]),
        "messages",
        statistics.median(ours / theirs for ours, theirs in pairs),
        goal,
        at_least=True,
        limit=statistics.median(means[other]),
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
    count = 50_000 if place.quick else 300_000
    means: dict[str, list[float]] = {"by bucket": [], "unbucketed": [], "by key": []}
    for _ in range(1 if place.quick else _TURNS):
        with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
            means["by bucket"].append(asyncio.run(_bucketed(place, topic, count)))
            means["unbucketed"].append(_bare(kafka, 1, count))
            means["by key"].append(_bare(kafka, len(_KEYS), count))
    return means


async def _bucketed(place: Place, topic: TopicUnderTest, count: int) -> float:
    async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
        producer = await client.create_producer(
            topic.name, count_batches=True, linger_ms=_LINGER_MS
        )
        await producer.send_many((key, _VALUE) for key in _KEYS * (count // len(_KEYS)))
        await producer.flush()
        while sum(each.messages for each in producer.stats()) < count:
            await asyncio.sleep(0.01)
        stats = producer.stats()
    return sum(each.messages for each in stats) / sum(each.batches for each in stats)


def _bare(kafka: BareKafka, partitions: int, count: int) -> float:
    counted = BatchCount()
    topic = kafka.topic(partitions)
    producer = kafka.producer(
        **{
            "linger.ms": _LINGER_MS,
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
    while counted.messages < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{counted.messages} of {count} messages were counted")
        producer.poll(0.05)
    return counted.messages / counted.batches
