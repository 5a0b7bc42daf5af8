"""Work that is done beside the event loop, held until a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Beside:
    """What is made in threads while this stands for `asyncio.to_thread`: it waits for `begin`."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.begin = threading.Event()
        self._to_thread = asyncio.to_thread

    async def __call__(self, make: Callable[[], object]) -> object:
        self.made.append(make.__qualname__)

        def held() -> object:
            assert self.begin.wait(60.0)
            return make()

        return await self._to_thread(held)
