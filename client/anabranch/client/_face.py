"""`LoopThread`, an event loop for threads that wait, and `Face`, their view of an object."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from anabranch.access.home import Home
from anabranch.client._aio import Closing
from anabranch.client._errors import HOME_ERRORS, ClosedError
from anabranch.core.errors import InvalidInputError

P = ParamSpec("P")
T = TypeVar("T")
PartT_co = TypeVar("PartT_co", bound=Closing, covariant=True)
MadeT = TypeVar("MadeT", bound=Closing)
FaceT = TypeVar("FaceT")

_STOP_S_MAX: Final = 10.0


class LoopThread:
    """Runs functions on its loop for other threads.
    Its thread is a daemon, so it ends with the process at the latest.
    """

    def __init__(self, what: str) -> None:
        self.home: Final = Home(self, what, HOME_ERRORS)
        self.is_over = False
        self._loop = asyncio.new_event_loop()
        self._submitting = threading.Lock()  # no call may come after the loop's last turn
        self._thread = threading.Thread(target=self._run, name="anabranch-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()  # at its end the runner cancels what is left

    def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Calls the function on the loop's thread and returns the result.
        Raises the errors of `wait`.
        """

        async def on_loop() -> T:
            return function(*args, **named)

        return self._outcome(on_loop)

    def wait(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **named: P.kwargs
    ) -> T:
        """Runs the coroutine function on the loop and returns the result. It cancels the coroutine
        when the caller stops waiting.

        Raises the coroutine's errors, ClosedError, and InvalidInputError on the loop's own thread.
        """

        async def on_loop() -> T:
            return await function(*args, **named)

        return self._outcome(on_loop)

    def check_elsewhere(self) -> None:
        """Raises InvalidInputError on the loop's own thread, which would wait for itself, and
        ForkedError in a forked process, which has no such thread.
        """
        self.home.check_process()
        if threading.current_thread() is self._thread:
            raise InvalidInputError(
                "the synchronous SDK cannot be called in what it calls back, such as on_delivery: "
                "hand the work over to a thread of yours, for example by a queue.Queue"
            )

    def stop(self) -> None:
        """Ends the loop and the calls that other threads wait for. A second call does nothing."""
        if self.home.is_forked:
            return
        self.check_elsewhere()
        with self._submitting:
            if not self.is_over:
                self.is_over = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S_MAX)

    def _outcome(self, on_loop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.check_elsewhere()
        outcome: Future[T] | None = None
        try:
            with self._submitting:
                if self.is_over:
                    raise ClosedError("the client was closed: make another one")
                outcome = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
            return outcome.result()
        except CancelledError:
            raise ClosedError("the client was closed: make another one") from None
        finally:
            if outcome is not None:
                outcome.cancel()  # it is not done after Ctrl-C, and has no waiter any more


class Face(Generic[PartT_co]):
    """One of the SDK's objects, with methods that wait.
    It closes the object when used as a context manager.
    """

    def __init__(self, part: PartT_co, thread: LoopThread) -> None:
        self._part = part
        self._thread = thread

    def close(self) -> None:
        """Closes the object. It does nothing once the client is closed."""
        if not self._thread.is_over:
            self._thread.wait(self._part.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        hides = raised[0] is not None and self._thread.home.is_forked  # it is the parent's
        if not self._thread.is_over and not hides:
            self._thread.wait(self._part.__aexit__, *raised)


def calls(
    method: Callable[Concatenate[PartT_co, P], T],
) -> Callable[Concatenate[Face[PartT_co], P], T]:
    """Makes a method of the face that calls that of the object."""

    @functools.wraps(method)
    def call(face: Face[PartT_co], /, *args: P.args, **named: P.kwargs) -> T:
        found: Callable[P, T] = getattr(face._part, method.__name__)  # what instruments it, too
        return face._thread.call(found, *args, **named)

    return call


def waits(
    method: Callable[Concatenate[PartT_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[PartT_co], P], T]:
    """Makes a method of the face that waits for that of the object."""

    @functools.wraps(method)
    def wait(face: Face[PartT_co], /, *args: P.args, **named: P.kwargs) -> T:
        found: Callable[P, Coroutine[Any, Any, T]] = getattr(face._part, method.__name__)
        return face._thread.wait(found, *args, **named)

    return wait


def makes(
    method: Callable[Concatenate[PartT_co, P], Coroutine[Any, Any, MadeT]],
    kind: Callable[[MadeT, LoopThread], FaceT],
) -> Callable[Concatenate[Face[PartT_co], P], FaceT]:
    """Makes a method of the face that waits for a new object, and returns the face of
    that object.
    """

    @functools.wraps(method)
    def make(face: Face[PartT_co], /, *args: P.args, **named: P.kwargs) -> FaceT:
        return kind(face._thread.wait(method, face._part, *args, **named), face._thread)

    return make
