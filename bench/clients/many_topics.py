"""One stream consumer of 1,000 topics: to open it, to keep it at rest, and to read all of them.

Each topic has one segment with one bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client, StreamTopicsConsumer, TopicSelection
from anabranch.core.errors import AnabranchError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from bench.figure import Measured, spread
from bench.place import Place, resident_mb
from bench.topics.memory import own_all
from support.topics_on_log import append_topics, make_kafka_topics

_HOME: Final = "public/default"
_TOPICS: Final = 1_000
_MESSAGES: Final = 5  # of each topic
_OF_PRODUCER: Final = 500  # topics: librdkafka looks for one through all that a producer has
_FLUSH_S: Final = 60.0
_OPEN_S: Final = 600.0
_SETTLE_S: Final = 15.0  # what opening began is over
_REST_S: Final = 30.0
_READ_S: Final = 180.0  # what is not read by then is told, and no fault
_GOAL_PERCENT: Final = 50.0  # of a core, at rest
_LOOK_S: Final = 0.01
_LAPSES: Final = ("consumer.session_lapsed", "consumer.topic_failed")


def at_rest(place: Place) -> Measured:
    """The share of a core that the consumer takes when nothing comes. In the details what opening
    it took, and how evenly it reads a backlog of all topics.
    """
    count = _TOPICS // 10 if place.quick else _TOPICS
    names = [f"{_HOME}/many-{number:05d}" for number in range(count)]
    prefix = f"bench-{place.number()}."
    with EmbeddedKafka(place.folder / "kafka-of-many") as kafka:
        connection = KafkaConnection(kafka.bootstrap_servers)
        process = place.lonely_node(prefix, kafka=kafka)
        try:
            process.start()
            await_ready([process])
            own_all(process, _HOME)
            process.kill()
            topics = append_topics(connection, prefix, process.broker_id, names, 1)
            began = time.monotonic()
            make_kafka_topics(connection, topics)
            made_s = time.monotonic() - began
            process.start()
            await_ready([process])
            found = asyncio.run(_consumed(connection, process, topics))
        finally:
            stop_all([process])
    found["kafka_made_topics_s"] = made_s
    percent = found["at_rest_percent"]
    return Measured(percent, "% of a core", percent, _GOAL_PERCENT, details=found)


async def _consumed(
    connection: KafkaConnection, node: NodeProcess, topics: Sequence[SegmentTopic]
) -> dict[str, Any]:
    lapses = _Lapses()
    logging.getLogger("anabranch").addHandler(lapses)
    async with Client(node.service_url()) as client:
        threads, memory = _threads(), resident_mb(os.getpid())
        began, worked, node_worked = time.monotonic(), time.process_time(), _processor_s(node)
        selection = TopicSelection(_HOME, pattern="many-.*")
        looking = asyncio.create_task(_longest_block())
        consumer = await client.subscribe_topics(selection, "all", subscribe_timeout_s=_OPEN_S)
        found: dict[str, Any] = {
            "topics": len(consumer.topics),
            "failing": len(consumer.failing),
            "opened_s": time.monotonic() - began,
            "opening_processor_s": time.process_time() - worked,
            "opening_processor_of_node_s": _processor_s(node) - node_worked,
            "threads": _threads() - threads,
            "memory_mb": resident_mb(os.getpid()) - memory,
        }
        looking.cancel()
        await asyncio.wait([looking])
        found["opening_blocked_s"] = looking.result()
        if found["topics"] < len(topics):
            raise RuntimeError(f"{found['failing']} of {len(topics)} topics are failing")
        await asyncio.sleep(_SETTLE_S)
        node_worked = _processor_s(node)
        found["at_rest_percent"] = await _share()
        found["at_rest_percent_of_node"] = 100 * (_processor_s(node) - node_worked) / _REST_S
        found |= await _read(connection, consumer, topics)
        began = time.monotonic()
        await consumer.close()
        found["closed_s"] = time.monotonic() - began
        return {**found, "lapses": dict(lapses.seen)}


class _Lapses(logging.Handler):
    """Counts what should not happen while nothing fails."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "")
        if event in _LAPSES:
            self.seen[event] += 1


async def _longest_block() -> float:
    """For how long the event loop was kept from running at most, until it is cancelled."""
    longest = 0.0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            due = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            longest = max(longest, time.monotonic() - due)
    return longest


async def _share() -> float:
    began, worked = time.monotonic(), time.process_time()
    await asyncio.sleep(_REST_S)
    return 100 * (time.process_time() - worked) / (time.monotonic() - began)


async def _read(
    connection: KafkaConnection, consumer: StreamTopicsConsumer, topics: Sequence[SegmentTopic]
) -> dict[str, Any]:
    """A backlog in every topic: how fast it is read, and when each topic had its first turn."""
    # Elsewhere: it would take its time from the consumer.
    names = [topic.name for topic in topics]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(other, _produce, connection.bootstrap_servers, names)
    began = time.monotonic()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    seen: set[tuple[str, int]] = set()
    again, expected = 0, _MESSAGES * len(topics)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READ_S):
            while len(seen) < expected:
                batch = await consumer.receive_many()
                now = time.monotonic() - began
                for message in batch:
                    which = (message.topic, message.offset)  # one segment with one bucket
                    if which in seen:
                        again += 1  # whose session has lapsed is given it once more
                        continue
                    seen.add(which)
                    first.setdefault(message.topic, now)
                    last[message.topic] = now
                consumer.acknowledge(batch)
    read_at = time.monotonic()
    with contextlib.suppress(AnabranchError):  # what is not committed by then is told, too
        await consumer.flush(_FLUSH_S)
    committed_s = time.monotonic() - read_at
    found = {"unread": expected - len(seen), "read_again": again, "committed_s": committed_s}
    if not last:
        return found
    return {
        **found,
        "read_per_s": len(seen) / max(last.values()),
        "first_turn_s": spread(list(first.values())),
        "last_message_s": spread(list(last.values())),
        "last_to_median": max(last.values()) / statistics.median(last.values()),
    }


def _produce(bootstrap_servers: str, topics: Sequence[str]) -> None:
    for first in range(0, len(topics), _OF_PRODUCER):
        producer = KafkaConnection(bootstrap_servers).producer()
        for topic in topics[first : first + _OF_PRODUCER]:
            for number in range(_MESSAGES):
                producer.produce(topic, str(number).encode(), partition=0)
            producer.poll(0)
        if producer.flush(_READ_S):
            raise RuntimeError("Kafka did not take the backlog")


def _processor_s(node: NodeProcess) -> float:
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
