"""What a fixture opens for a test that is a coroutine: on the loop of the test, while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Opening:
    """A fixture returns it; the test gets what `open` opens."""

    open: Callable[[], AbstractAsyncContextManager[Any]]


async def opened(test: Callable[..., Awaitable[None]], wanted: Mapping[str, Any]) -> None:
    """Runs the test with what it wants, all of it open."""
    async with AsyncExitStack() as stack:
        given = {
            name: await stack.enter_async_context(each.open())
            if isinstance(each, Opening)
            else each
            for name, each in wanted.items()
        }
        await test(**given)
