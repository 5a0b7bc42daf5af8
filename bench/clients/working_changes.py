"""What is done twice, or out of order, while consumers end cleanly and segments split and merge."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any, Final, NamedTuple

from anabranch.client import Client, StreamConsumer
from bench.clients.working import DEADLINE_S
from bench.figure import Measured
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest
from support.working import RETRY, SUBSCRIPTION, Entry, Worker, wrong

_SECONDS: Final = 600
_CHANGE_S: Final = 2.0
_END_S: Final = 6.0  # between two ends of consumers
_CONSUMERS: Final = 3
_PER_S: Final = 500
_KEYS: Final = 700
_SEGMENTS: Final = (3, 6)  # at least and at most, but for a moment
_SLOTS: Final = 100
_FAILS: Final = 0.01
_LONGEST_S: Final = 0.05


class _Told(NamedTuple):
    messages: int
    splits: int
    merges: int
    ends: int
    wrong: list[str]


def changes(place: Place) -> Measured:
    """The share of messages of which the judge of the tests, who knows the history alone, finds
    nothing wrong.
    """
    seconds = 30 if place.quick else _SECONDS
    with TopicUnderTest(place, _SEGMENTS[0]) as topic:
        told = asyncio.run(_Changes(place, topic).told(seconds))
    details: dict[str, Any] = {**told._asdict(), "seconds": seconds, "sent_per_s": _PER_S}
    share = 1.0 - len(told.wrong) / told.messages
    return Measured(share, "", share, 1.0, at_least=True, details=details)


class _Changes:
    """A topic under load whose consumers and segments change."""

    def __init__(self, place: Place, topic: TopicUnderTest) -> None:
        self._place = place
        self._topic = topic
        self._history: list[Entry] = []
        self._sent: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._names = (f"consumer-{number}" for number in itertools.count())
        self._running: list[tuple[StreamConsumer, asyncio.Task[None]]] = []
        self._over = asyncio.Event()
        self._done: set[str] = set()
        self._all_done = asyncio.Event()

    async def told(self, seconds: float) -> _Told:
        """Returns what was done and found in that time, and until all was worked on."""
        async with (
            Client(self._place.service_urls()) as client,
            asyncio.timeout(seconds + DEADLINE_S),
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(_CONSUMERS):
                await self._begin(client)
            sending = tasks.create_task(self._send(client))
            changing = tasks.create_task(self._change())
            for _ in range(int(seconds / _END_S)):
                await asyncio.sleep(_END_S)
                await self._begin(client)
                await self._end()
            self._over.set()
            await changing
            await sending
            self._look()
            await self._all_done.wait()
            while self._running:
                await self._end()
        counts = self._counts
        found = wrong(self._history, self._sent)
        return _Told(self._sent.total(), counts["split"], counts["merge"], counts["end"], found)

    async def _begin(self, client: Client) -> None:
        who = next(self._names)
        consumer = await client.subscribe(self._topic.name, SUBSCRIPTION, who)
        worker = Worker(who, self._note, _FAILS, _LONGEST_S)
        run = asyncio.create_task(consumer.run(worker, concurrency=_SLOTS, retry=RETRY))
        self._running.append((consumer, run))

    def _note(self, entry: Entry) -> None:
        self._history.append(entry)
        if entry.what == "done":
            self._done.add(entry.id)
            self._look()

    def _look(self) -> None:
        if self._over.is_set() and len(self._done) == self._sent.total():
            self._all_done.set()

    async def _end(self) -> None:
        consumer, run = self._running.pop(0)
        await consumer.stop()
        await run
        self._counts["end"] += 1

    async def _send(self, client: Client) -> None:
        async with await client.create_producer(self._topic.name) as producer:
            for number in itertools.count():
                if self._over.is_set():
                    return
                key = f"key-{number % _KEYS}"
                await producer.post(str(self._sent[key]).encode(), key.encode())
                self._sent[key] += 1
                if number % (_PER_S // 20) == 0:
                    await asyncio.sleep(0.05)

    async def _change(self) -> None:
        fewest, most = _SEGMENTS
        is_growing = True
        while not self._over.is_set():
            ranges = await asyncio.to_thread(self._topic.active)
            active = sorted(ranges, key=lambda each: ranges[each])
            is_growing = len(active) <= fewest or (is_growing and len(active) < most)
            if is_growing:
                widest = max(active, key=lambda each: ranges[each][1] - ranges[each][0])
                await asyncio.to_thread(self._topic.split, widest)
            else:
                await asyncio.to_thread(self._topic.merge, *active[:2])
            self._counts["split" if is_growing else "merge"] += 1
            await asyncio.sleep(_CHANGE_S)
