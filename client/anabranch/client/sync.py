"""A synchronous face of the SDK, for scripts.

    with connect("pulsar://127.0.0.1:6650") as client:
        producer = client.create_producer("topic://public/default/orders")
        producer.send(b"value", key="key")

Every method of the asynchronous objects is there under its own name and waits for its result. The
event loop runs on a thread of its own, so the objects may be used by several threads; each call
costs two changes of thread. To send much use `send_many`.

What is called back, such as `on_delivery`, is called on that thread, where nothing may wait for the
loop: there the objects refuse every call. A call that Ctrl-C interrupts is cancelled. Closing the
client ends the calls of other threads with ClosedError.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Self

from anabranch.client.client import Client
from anabranch.client.errors import ClosedError
from anabranch.core.errors import InvalidInputError

_STOP_S_MAX: Final = 10.0


class _LoopThread:
    """An event loop on a thread of its own, a daemon: it ends with the process at the latest."""

    def __init__(self) -> None:
        self.is_over = False
        self._loop = asyncio.new_event_loop()
        self._submitting = threading.Lock()  # no call may come after the loop's last turn
        self._thread = threading.Thread(target=self._run, name="anabranch-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()  # at its end the runner cancels what is left

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """What the function returns on the loop's thread; awaits it if it is to be awaited.

        Raises ClosedError, InvalidInputError on the loop's own thread.
        """
        self.check_elsewhere()

        async def on_loop() -> Any:
            result = function(*args, **named)
            return await result if inspect.isawaitable(result) else result

        outcome: Future[Any] | None = None
        try:
            with self._submitting:
                if self.is_over:
                    raise ClosedError("the client was closed")
                outcome = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
            return outcome.result()
        except CancelledError:
            raise ClosedError("the client was closed") from None
        finally:
            if outcome is not None:
                outcome.cancel()  # Ctrl-C came, if it is not done: nobody waits for it any more

    def check_elsewhere(self) -> None:
        """Raises InvalidInputError on the loop's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise InvalidInputError(
                "the synchronous SDK cannot be called in what it calls back, such as on_delivery: "
                "hand the work over to a thread of yours, for example by a queue.Queue"
            )

    def stop(self) -> None:
        """Ends the loop, and the calls that other threads wait for; again it does nothing."""
        self.check_elsewhere()
        with self._submitting:
            if not self.is_over:
                self.is_over = True
                self._loop.call_soon_threadsafe(self._loop.stop)
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

    def close(self, *args: Any, **named: Any) -> None:
        """As the object's own; once the client is closed it does nothing."""
        self._end(self._part.close, *args, **named)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._part.__aexit__, kind, error, trace)

    def _end(self, function: Any, *args: Any, **named: Any) -> None:
        if not self._thread.is_over:
            self._thread.call(function, *args, **named)


class BlockingClient(Blocking):
    """A `Client` whose methods wait; `connect` makes it.

    Closing it closes what it made as well, and ends its thread.
    """

    def _end(self, function: Any, *args: Any, **named: Any) -> None:
        try:
            super()._end(function, *args, **named)
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
