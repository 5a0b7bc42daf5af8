"""`Closing`: what is closed at the end of an `async with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Use as an asynchronous context manager, or call `close`."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it; calling it again ends nothing more."""

    async def abandon(self) -> None:
        """Ends it after an error: waits for nothing that may never come, and raises nothing of its
        own that would hide the error.
        """
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.close() if error is None else self.abandon())
