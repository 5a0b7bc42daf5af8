"""Work on wide topics is done beside the event loop, so that everybody else is served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from anabranch.core.topics import ScalableTopic

_T = TypeVar("_T")

AT_ONCE: Final = 500  # segments, which take some 10 ms


async def beside(topic: ScalableTopic, make: Callable[[], _T]) -> _T:
    """What `make` returns, which is called in a thread if the topic is wide."""
    if len(topic.segments) <= AT_ONCE:
        return make()
    return await asyncio.to_thread(make)


class Shared(Generic[_T]):
    """What several wait for of a wide topic is made once for all of them, one at a time."""

    def __init__(self) -> None:
        self._making: dict[str, tuple[object, asyncio.Task[_T]]] = {}

    async def of(
        self,
        name: str,
        topic: ScalableTopic,
        mark: object,
        make: Callable[[], Coroutine[Any, Any, _T]],
    ) -> _T:
        """What `make` returns, or raises; it goes on when who asked for it does not wait.

        `mark` tells what is to be made from what is being made of an earlier state.
        """
        if len(topic.segments) <= AT_ONCE:
            return await make()
        making = self._making.get(name)
        if making is None or making[0] != mark:
            task = asyncio.create_task(make(), name="wide")
            making = self._making[name] = (mark, task)
            task.add_done_callback(lambda done: self._made(name, done))
        return await asyncio.shield(making[1])

    def _made(self, name: str, done: asyncio.Task[_T]) -> None:
        making = self._making.get(name)
        if making is not None and making[1] is done:
            del self._making[name]
        if not done.cancelled():
            done.exception()  # nobody may wait for it any more
