"""A process that only produces, to be measured as a whole: by the SDK, or by the bare client.

python -m bench.clients.wide_process {sdk|bare} SERVICE_URLS TOPIC ...
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from anabranch.client import Client, Producer, TopicLayout
from bench.clients.bare import Delivered, producer_of
from bench.place import resident_mb

MESSAGES: Final = 50_000  # each with a key of its own
_VALUE: Final = b"x" * 50
_KEYS: Final = [f"key-{number}".encode() for number in range(MESSAGES)]
_POLL_EVERY: Final = 500  # messages
_FLUSH_S: Final = 120.0


class Turn(msgspec.Struct, frozen=True):
    """All messages once, from the first call until Kafka has the last one."""

    took_s: float
    processor_s: float  # of all threads

    @property
    def rate(self) -> float:
        """Messages per second."""
        return MESSAGES / self.took_s


class Produced(msgspec.Struct, frozen=True):
    """Two turns of a process, and the most that it had meanwhile.

    `opened`: how long the producers took to be made. `grown_mb`: how much its memory has grown
    since the time before its client.
    """

    opened: Turn
    first: Turn
    second: Turn
    threads: int
    files: int
    grown_mb: float


class _Watched:
    """Looks at this process, now and then."""

    def __init__(self) -> None:
        self._before_mb = resident_mb(os.getpid())
        self._threads = 0
        self._files = 0
        self._began = (0.0, 0.0)

    def look(self) -> None:
        self._threads = max(self._threads, _entries("/proc/self/task"))
        self._files = max(self._files, _entries("/proc/self/fd"))

    def begin(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def turn(self) -> Turn:
        """The time since `begin`."""
        now = (time.perf_counter(), time.process_time())
        self.look()
        return Turn(now[0] - self._began[0], now[1] - self._began[1])

    def produced(self, opened: Turn, first: Turn, second: Turn) -> Produced:
        grown = resident_mb(os.getpid(), "VmHWM") - self._before_mb
        return Produced(opened, first, second, self._threads, self._files, grown)


def _entries(folder: str) -> int:
    return len(list(Path(folder).iterdir()))


async def _by_sdk(urls: str, topics: Sequence[str]) -> Produced:
    """Each producer sends an equal share of the messages; all send at once."""
    pairs = [(key, _VALUE) for key in _KEYS]
    shares = [pairs[number :: len(topics)] for number in range(len(topics))]
    watched = _Watched()

    async def send(producer: Producer, share: list[tuple[bytes, bytes]]) -> None:
        await producer.send_many(share)
        watched.look()
        await producer.flush()

    async with Client(urls) as client:

        async def turn() -> Turn:
            watched.begin()
            await asyncio.gather(*map(send, producers, shares))
            return watched.turn()

        watched.begin()
        producers = [await client.create_producer(topic) for topic in topics]
        opened = watched.turn()
        return watched.produced(opened, await turn(), await turn())


async def _layout(urls: str, topic: str) -> TopicLayout:
    async with Client(urls) as client:
        return (await client.watch(topic)).layout


def _by_bare(urls: str, topics: Sequence[str]) -> Produced:
    """The same keys to the Kafka topics and partitions that the SDK chooses."""
    (topic,) = topics
    layout = asyncio.run(_layout(urls, topic))
    found = [(key, *layout.place(key)) for key in _KEYS]
    places = [(key, part.kafka_topic, bucket) for key, part, bucket in found]
    watched = _Watched()
    watched.begin()
    producer = producer_of(layout.bootstrap_servers)
    producer.list_topics(places[0][1], _FLUSH_S)
    opened = watched.turn()

    def turn() -> Turn:
        delivered = Delivered()
        produce, poll = producer.produce, producer.poll
        watched.begin()
        for number, (key, name, partition) in enumerate(places):
            produce(name, _VALUE, key, partition, on_delivery=delivered)
            if number % _POLL_EVERY == 0:
                poll(0)
        watched.look()
        producer.flush(_FLUSH_S)
        took = watched.turn()
        delivered.check(MESSAGES)
        return took

    return watched.produced(opened, turn(), turn())


def main(arguments: Sequence[str]) -> int:
    """Prints `Produced` as JSON."""
    how, urls, *topics = arguments
    found = asyncio.run(_by_sdk(urls, topics)) if how == "sdk" else _by_bare(urls, topics)
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
