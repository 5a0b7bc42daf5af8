"""A steady rate of numbered messages, and how long each took from its sending to its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from anabranch.client import DeliveryResult, Producer
from support.waiting import WAIT_S


class Told(NamedTuple):
    """A message was sent at that time and acknowledged so many seconds later."""

    sent: float
    took: float


class SteadyTraffic:
    """Sends one message after the other, of each key in turn, whatever becomes of those before.

    `sent`: the values by key. `failed`: what Kafka does not have, or may not have, and why.
    """

    def __init__(self, producer: Producer, keys: list[bytes], pause_s: float) -> None:
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self.failed: dict[tuple[bytes, bytes], Exception] = {}
        self.told: list[Told] = []
        self._producer = producer
        self._pause_s = pause_s
        self._task = asyncio.create_task(self._run(keys))

    async def _run(self, keys: list[bytes]) -> None:
        due = time.monotonic()
        for number in itertools.count():
            key, value = keys[number % len(keys)], b"%d" % number
            await self._producer.post(value, key, on_delivery=self._noting(key, value))
            self.sent[key].append(value)
            due = max(due + self._pause_s, time.monotonic() - 10 * self._pause_s)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _noting(
        self, key: bytes, value: bytes
    ) -> Callable[[DeliveryResult | None, Exception | None], None]:
        sent = time.monotonic()

        def note(_: DeliveryResult | None, error: Exception | None) -> None:
            self.told.append(Told(sent, time.monotonic() - sent))
            if error is not None:
                self.failed[key, value] = error

        return note

    def worst(self, since: float) -> float:
        """The longest that a message took that was sent then or later, in seconds."""
        found = 0.0
        for each in reversed(self.told):
            if each.sent < since - 60.0:
                break
            if each.sent >= since:
                found = max(found, each.took)
        return found

    async def stop(self) -> None:
        """Returns once it is known of each message what became of it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._producer.flush(WAIT_S)
