"""One stream consumer of 10,000 topics: to open it, to keep it at rest, and to read all of them."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client, StreamTopicsConsumer, TopicSelection
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.topics_on_log import append_topics, make_kafka_topics
from bench.figure import Measured, spread
from bench.memory import own_all
from bench.place import Place, resident_mb

_HOME: Final = "public/default"
_TOPICS: Final = 10_000
_MESSAGES: Final = 20  # of each topic
_OPEN_S: Final = 600.0
_SETTLE_S: Final = 15.0  # what opening began is over
_REST_S: Final = 30.0
_READ_S: Final = 600.0
_GOAL_PERCENT: Final = 50.0  # of a core, at rest


def at_rest(place: Place) -> Measured:
    """The share of a core that the consumer takes when nothing comes. In the details what opening
    it took, and how evenly it reads a backlog of all topics.
    """
    count = _TOPICS // 10 if place.quick else _TOPICS
    names = [f"{_HOME}/many-{number:05d}" for number in range(count)]
    prefix = f"bench-{place.number()}."
    process = place.lonely_node(prefix)
    try:
        process.start()
        await_ready([process])
        own_all(process, _HOME)
        process.kill()
        topics = append_topics(place.connection, prefix, process.broker_id, names, 1)
        make_kafka_topics(place.connection, topics)
        process.start()
        await_ready([process])
        found = asyncio.run(_consumed(place, process, topics))
    finally:
        stop_all([process])
    percent = found["at_rest_percent"]
    return Measured(percent, "% of a core", percent, _GOAL_PERCENT, details=found)


async def _consumed(
    place: Place, node: NodeProcess, topics: Sequence[SegmentTopic]
) -> dict[str, Any]:
    async with Client(node.service_url()) as client:
        threads, memory = _threads(), resident_mb(os.getpid())
        began, worked = time.monotonic(), time.process_time()
        selection = TopicSelection(_HOME, pattern="many-.*")
        consumer = await client.subscribe_topics(selection, "all", subscribe_timeout_s=_OPEN_S)
        found: dict[str, Any] = {
            "topics": len(consumer.topics),
            "failing": len(consumer.failing),
            "opened_s": time.monotonic() - began,
            "opening_processor_s": time.process_time() - worked,
            "threads": _threads() - threads,
            "memory_mb": resident_mb(os.getpid()) - memory,
        }
        if found["topics"] < len(topics):
            raise RuntimeError(f"{found['failing']} of {len(topics)} topics are failing")
        await asyncio.sleep(_SETTLE_S)
        found["at_rest_percent"] = await _share()
        return {**found, **await _read(place, consumer, topics)}


async def _share() -> float:
    began, worked = time.monotonic(), time.process_time()
    await asyncio.sleep(_REST_S)
    return 100 * (time.process_time() - worked) / (time.monotonic() - began)


async def _read(
    place: Place, consumer: StreamTopicsConsumer, topics: Sequence[SegmentTopic]
) -> dict[str, Any]:
    """A backlog in every topic: how fast it is read, and when each topic had its first turn."""
    await asyncio.to_thread(_produce, place, topics)
    began = time.monotonic()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    left = _MESSAGES * len(topics)
    async with asyncio.timeout(_READ_S):
        while left:
            batch = await consumer.receive_many()
            now = time.monotonic() - began
            for message in batch:
                first.setdefault(message.topic, now)
                last[message.topic] = now
                left -= 1
            consumer.acknowledge(batch)
    return {
        "read_per_s": _MESSAGES * len(topics) / max(last.values()),
        "first_turn_s": spread(list(first.values())),
        "last_message_s": spread(list(last.values())),
        "last_to_median": max(last.values()) / statistics.median(last.values()),
    }


def _produce(place: Place, topics: Sequence[SegmentTopic]) -> None:
    producer = place.connection.producer()
    for topic in topics:
        for number in range(_MESSAGES):
            producer.produce(topic.name, str(number).encode(), partition=0)
        producer.poll(0)
    if producer.flush(_READ_S):
        raise RuntimeError("Kafka did not take the backlog")


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
