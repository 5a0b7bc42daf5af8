"""Chains of cause and effect: of each key one message after the other, by several processes.

A key's next message is sent by another producer than the one before, and only once that one's
acknowledgement has come; which is in another process, whose history says so. So there is one order
in which a key's messages may be read, and it is known without asking the product. Producers come
and go meanwhile: each is closed after a while, and another one has its place.

If nothing is heard of a key for a while, since whoever had its turn was killed or paused, anybody
goes on. Then two messages of a key may be under way together, which have no order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Final

from anabranch.client import Client, ClientError, Producer
from faults.history import Follower, History

KEYS: Final = tuple(f"key-{number}" for number in range(40))
EACH: Final = 2  # producers of a process
# How long a key rests each time that it is the first process's turn; the others answer at once.
PACE_S: Final = float(os.environ.get("PACE_S", "0"))
LIFE_S: Final = tuple(map(float, os.environ.get("PRODUCER_LIFE_S", "5 20").split()))  # from, to
PAUSE_S: Final = 0.02  # between two looks at what the others have said
OVERDUE_S: Final = 3.0
AGAIN_S: Final = 0.5
_SETTLED: Final = ("acknowledged", "unsent")


class Chains:
    """The part of one process, the `index`-th of `of`, in all chains.

    Numbers are never used twice: those of a process are its own, and a process that was killed
    goes on behind the last one that it said it would send.
    """

    def __init__(self, folder: Path, history: History, index: int, of: int) -> None:
        self._history = history
        self._others = Follower(folder, except_for=f"producers-{index + 1}")
        self._index = index
        self._of = of
        self._random = random.Random(index)
        self._next: defaultdict[str, int] = defaultdict(int)
        self._turn: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()
        for turn in self._turn.values():
            turn.set()

    async def run(self, client: Client, topic: str) -> None:
        """Until `stop`; then waits for what is under way."""
        self._resume()
        producers = [await _made(client, topic, self._history) for _ in range(EACH)]
        beside = [
            asyncio.create_task(each)
            for each in (self._listen(), self._renew(client, topic, producers))
        ]
        if self._index == 0 and not self._history.past:
            for key in KEYS:
                self._turn[key].set()
        self._history.say("producing")
        await asyncio.gather(*(self._chain(key, producers) for key in KEYS))
        for each in beside:
            each.cancel()
        self._history.say("sent")

    def _resume(self) -> None:
        """What a killed process of this name left: messages that may be stored or not."""
        open_: set[tuple[str, int]] = set()
        for line in self._history.past:
            if line["what"] == "send":
                open_.add((line["key"], line["number"]))
                self._next[line["key"]] = line["number"] // self._of + 1
            elif line["what"] in _SETTLED:
                open_.discard((line["key"], line["number"]))
        for key, number in sorted(open_):
            self._history.say("unsent", key=key, number=number, why="its process was killed")

    async def _listen(self) -> None:
        while True:
            for line in self._others.more():
                if line["what"] in _SETTLED:
                    self._turn[line["key"]].set()
            await asyncio.sleep(PAUSE_S)

    async def _chain(self, key: str, producers: list[Producer]) -> None:
        while True:
            await self._wait_for_turn(key)
            if self._stopping.is_set():
                return
            at = self._next[key]
            self._next[key] = at + 1
            number = at * self._of + self._index
            self._history.say("send", key=key, number=number)
            try:
                found = await producers[at % len(producers)].send(b"%d" % number, key)
            except ClientError as error:
                # Stored or not: the next one has another number, so that both can be told.
                self._history.say("unsent", key=key, number=number, why=str(error))
            else:
                self._history.say(
                    "acknowledged",
                    key=key,
                    number=number,
                    place=[found.segment_id, found.bucket, found.offset],
                )

    async def _renew(self, client: Client, topic: str, producers: list[Producer]) -> None:
        """Another producer takes the place of one of them, which settles what it has and ends."""
        while True:
            await asyncio.sleep(self._random.uniform(*LIFE_S) / EACH)
            at = self._random.randrange(EACH)
            before, producers[at] = producers[at], await _made(client, topic, self._history)
            with contextlib.suppress(ClientError):  # what failed is told where it was sent
                await before.close()

    async def _wait_for_turn(self, key: str) -> None:
        if self._of == 1:
            await asyncio.sleep(PAUSE_S)
            return
        if self._index == 0:
            await asyncio.sleep(PACE_S)
        turn = self._turn[key]
        try:
            async with asyncio.timeout(OVERDUE_S):
                await turn.wait()
        except TimeoutError:
            self._history.say("overdue", key=key)
        if not self._stopping.is_set():
            turn.clear()


async def _made(client: Client, topic: str, history: History) -> Producer:
    while True:
        try:
            return await client.create_producer(topic)
        except ClientError as error:
            history.say("again", why=str(error))
            await asyncio.sleep(AGAIN_S)
