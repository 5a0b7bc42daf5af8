"""Sees to it that topics somebody waits for get a controller, though nobody looks them up."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from anabranch.broker.errors import OperationError
from anabranch.broker.topics.access import Access

_AGAIN_S: Final = 1.0
_RESTLESS_MAX: Final = 64  # looked at in one tick


class Turns:
    """A few of many names at a time, and all of them in turn."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._last = ""

    def next(self, names: Iterable[str]) -> list[str]:
        """Those that follow, by name, on the ones returned last; then again from the first."""
        ordered = sorted(names)
        place = bisect_right(ordered, self._last)
        chosen = (ordered[place:] + ordered[:place])[: self._count]
        if chosen:
            self._last = chosen[-1]
        return chosen


class Seeker:
    """One search a topic, for as long as it is wanted. To be used in the event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._runtime = access.runtime
        self._turns = Turns(_RESTLESS_MAX)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        access.service.tickers.append(self._ticked)

    def seek(self, topic: str, wanted: Callable[[str], bool]) -> None:
        """Returns at once; does nothing for a topic whose controller is known."""
        if topic in self._tasks or self._access.controller_at(topic) is not None:
            return
        task = asyncio.create_task(self._find(topic, wanted), name="find controller")
        self._tasks[topic] = task
        task.add_done_callback(lambda _: self._tasks.pop(topic, None))

    async def stop(self) -> None:
        """Ends all searches."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, topic: str, wanted: Callable[[str], bool]) -> None:
        while wanted(topic) and not self._runtime.ended.done():
            with suppress(OperationError):
                await self._access.find_controller(topic)
                return
            await asyncio.sleep(_AGAIN_S)

    def _ticked(self) -> None:
        """The leader looks after topics whose operation stopped because their bundle is free."""
        if not self._runtime.has_lease or not self._runtime.core.is_leader():
            return
        for topic in self._turns.next(self._runtime.view.restless_topics()):
            self.seek(topic, self._is_restless)

    def _is_restless(self, name: str) -> bool:
        topic = self._runtime.view.topic(name)
        return topic is not None and topic.is_restless
