"""A synchronous face of the SDK, for scripts.

    with connect("pulsar://127.0.0.1:6650") as client:
        producer = client.create_producer("topic://public/default/orders")
        producer.send(b"value", key="key")

Every method of the asynchronous objects is there under its own name and waits for its result. The
event loop runs on a thread of its own, so the objects may be used by several threads; each call
costs two changes of thread. To send much use `send_many`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from types import TracebackType
from typing import Any, Final, Self

from anabranch.client.client import Client
from anabranch.client.errors import ClosedError

_STOP_S_MAX: Final = 10.0


class _LoopThread:
    """An event loop on a thread of its own, a daemon: it ends with the process at the latest."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="anabranch-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """What the function returns on the loop's thread; awaits it if it is to be awaited."""
        if not self._thread.is_alive():
            raise ClosedError("the client was closed")

        async def on_loop() -> Any:
            result = function(*args, **named)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_S_MAX)


class Blocking:
    """One of the SDK's objects, whose methods wait. Closes it when used as a context manager."""

    def __init__(self, part: Any, thread: _LoopThread) -> None:
        self._part = part
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def blocking(*args: Any, **named: Any) -> Any:
            result = self._thread.call(found, *args, **named)
            return Blocking(result, self._thread) if _is_part(result) else result

        return blocking

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.call(self._part.__aexit__, kind, error, trace)


class BlockingClient(Blocking):
    """A `Client` whose methods wait; `connect` makes it."""

    def close(self) -> None:
        """Closes the client and what it made, and ends its thread."""
        try:
            self._thread.call(self._part.close)
        finally:
            self._thread.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._thread.stop()


def connect(url: str, **settings: Any) -> BlockingClient:
    """A `Client` of that URL, with the settings of one. Raises InvalidInputError."""
    thread = _LoopThread()
    try:
        return BlockingClient(thread.call(Client, url, **settings), thread)
    except BaseException:
        thread.stop()
        raise


def _is_part(result: Any) -> bool:
    """Whether it is an object of the SDK that lives on the loop, not a plain value."""
    return type(result).__module__.startswith("anabranch.client.") and inspect.iscoroutinefunction(
        getattr(result, "close", None)
    )
