"""Handlers that write down when they begin and end, and a judge who knows nothing of the code.

As a program it is one consumer, whose history is a file that outlives it. Wider ones never fail. A
pattern of names in place of a topic is for one consumer over many:

    python -m support.working SERVICE_URL TOPIC FILE [NAME CONCURRENCY]
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from anabranch import client as sdk
from anabranch.client import Client

SUBSCRIPTION = "work"
RETRY = sdk.Retry(delay_s=sdk.Backoff(first=0.01, factor=2.0, most=0.1))


class Entry(NamedTuple):
    """A line of a history. `number` counts a key's messages; `what`: begin, done or failed.

    `fence` is the handler's at that time.
    """

    what: str
    who: str
    key: str
    number: int
    id: str
    fence: int

    def line(self) -> str:
        return " ".join(map(str, self)) + "\n"

    @classmethod
    def of(cls, line: str) -> Entry:
        what, who, key, number, place, fence = line.split()
        return cls(what, who, key, int(number), place, int(fence))


class Worker:
    """A handler that takes a while, and fails now and then. `write` takes the history, in which
    keys have their topic before them if there are several.
    """

    def __init__(
        self,
        who: str,
        write: Callable[[Entry], None],
        fails: float,
        longest_s: float,
        *,
        has_topics: bool = False,
    ) -> None:
        self._who = who
        self._write = write
        self._fails = fails
        self._longest_s = longest_s
        self._has_topics = has_topics
        self._rng = random.Random(who)

    async def __call__(self, message: sdk.Message, work: sdk.Work) -> None:
        key = message.key.decode()
        if self._has_topics:
            key = keyed(message.topic, key)
        told = (self._who, key, int(message.value), work.id, work.fence)
        self._write(Entry("begin", *told))
        try:
            await asyncio.sleep(self._rng.random() * self._longest_s)
            if self._rng.random() < self._fails:
                raise ValueError("now and then")
        except BaseException:
            self._write(Entry("failed", *told))
            raise
        self._write(Entry("done", *told))


def keyed(topic: str, key: str) -> str:
    """A key in a history of many topics."""
    return f"{topic}:{key}"


def wrong(history: Iterable[Entry], sent: dict[str, int], repeats_max: int = 0) -> list[str]:
    """What breaks a promise: two at once of a key, an order, a loss, too many repeats, or a fence
    that lets a former consumer pass.
    """
    said: list[str] = []
    running: dict[str, Entry] = {}
    done: dict[str, list[int]] = defaultdict(list)
    fences: dict[str, Entry] = {}  # the last to begin
    for entry in history:
        if entry.what == "begin":
            if entry.key in running and running[entry.key].who == entry.who:
                said.append(f"{entry} begins while {running[entry.key]} runs")
            running[entry.key] = entry
            before = fences.get(entry.key, entry)
            is_same = entry.who == before.who
            if entry.fence < before.fence or (entry.fence == before.fence and not is_same):
                said.append(f"{entry} has no greater fence than {before}")
            fences[entry.key] = entry
            missing = set(range(entry.number)) - set(done[entry.key])
            if missing:
                said.append(f"{entry} begins before {sorted(missing)[:3]} were done")
            continue
        running.pop(entry.key, None)
        if entry.what == "done":
            done[entry.key].append(entry.number)
    lost = {key for key, count in sent.items() if set(done[key]) != set(range(count))}
    repeats = sum(len(each) - len(set(each)) for each in done.values())
    if lost:
        said.append(f"not done: messages of {sorted(lost)[:5]}")
    if repeats > repeats_max:
        said.append(f"{repeats} were done twice")
    return said


async def main(url: str, topic: str, file: str, name: str = "", concurrency: str = "") -> None:
    """Works until it is killed."""
    with Path(file).open("ab", buffering=0) as history:  # noqa: ASYNC230 - it takes no time

        def write(entry: Entry) -> None:
            history.write(entry.line().encode())

        fails = 0.0 if concurrency else 0.05
        is_many = "*" in topic
        worker = Worker(f"process-{os.getpid()}", write, fails, 0.02, has_topics=is_many)
        async with Client(url) as client:
            consumer: sdk.StreamConsumer | sdk.StreamTopicsConsumer
            if is_many:
                chosen = sdk.TopicSelection("public/default", pattern=topic)
                consumer = await client.subscribe_topics(chosen, SUBSCRIPTION, name)
            else:
                consumer = await client.subscribe(topic, SUBSCRIPTION, name)
            await consumer.run(worker, concurrency=int(concurrency or 50), retry=RETRY)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
