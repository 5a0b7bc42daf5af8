"""Tasks without a waiter: their faults are logged, and endless work begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from anabranch.wire.logging import get_logger

AGAIN_S: Final = 1.0  # after a fault that may come at once again
_T = TypeVar("_T")

_logger = get_logger(__name__)


def supervised(work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
    """Returns a task whose fault is logged, even if nobody looks at it."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_look_at)
    return task


def kept_going(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Returns a task for endless work: after a fault, which is logged, it begins again."""

    async def again() -> None:
        while True:
            try:
                await run()
            except Exception as error:
                _logger.error("task.fault", task=name, exc_info=error)
            await asyncio.sleep(AGAIN_S)

    return supervised(again(), name)


def _look_at(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("task.fault", task=task.get_name(), exc_info=error)
