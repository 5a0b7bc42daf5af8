"""Runs coroutines of the product in simulated time: each of their waits is answered by an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from anabranch.core.errors import AnabranchError

T = TypeVar("T")


class Answer(Generic[T]):
    """What a coroutine waits for. `lasts`: not even a cancellation ends the wait."""

    __slots__ = ("_then", "lasts")

    def __init__(self, *, lasts: bool = False) -> None:
        self.lasts = lasts
        self._then: Callable[[T | None, BaseException | None], None] | None = None

    def __await__(self) -> Generator[Answer[T], T, T]:
        return (yield self)

    def wait(self, then: Callable[[T | None, BaseException | None], None] | None) -> None:
        self._then = then

    def give(self, result: T) -> None:
        if self._then is not None:
            self._then(result, None)

    def fail(self, error: BaseException) -> None:
        if self._then is not None:
            self._then(None, error)


class Work(Generic[T]):
    """One coroutine. `ended` is told what it returned, or the product's error that it raised.

    An answer may only be given after the event in which it was asked for.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        ended: Callable[[T | None, AnabranchError | None], None],
    ) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._waits: Answer[Any] | None = None
        self._cancelled = False
        self._go_on(None, None)

    def cancel(self) -> None:
        """As `asyncio.Task.cancel`; nothing when it is over."""
        waits = self._waits
        if waits is None:
            return
        self._cancelled = True
        if not waits.lasts:
            self._go_on(None, None)

    def _go_on(self, result: Any, error: BaseException | None) -> None:
        if self._waits is not None:
            self._waits.wait(None)
            self._waits = None
        if self._cancelled:
            self._cancelled, error = False, asyncio.CancelledError()
        try:
            if error is not None:
                waits = self._coroutine.throw(error)
            else:
                waits = self._coroutine.send(result)
        except StopIteration as end:
            self._ended(end.value, None)
        except AnabranchError as raised:
            self._ended(None, raised)
        else:
            self._waits = waits
            waits.wait(self._go_on)
