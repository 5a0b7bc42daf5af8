"""`Home`: the process and the event loop in which an object was made, and outside of which it is of
no use.

A fork copies memory and sockets, and no thread. In the child, waiting for a thread never ends, and
so does freeing a client of Kafka. So a child's use of its parent's objects is refused, and it keeps
them for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import warnings
import weakref
from typing import Any, Final, NamedTuple

from anabranch.core.errors import AnabranchError

_OURS: Final = ("anabranch.access", "anabranch.admin", "anabranch.client")


class HomeErrors(NamedTuple):
    """The errors to raise elsewhere."""

    forked: type[AnabranchError]
    other_loop: type[AnabranchError]


class Home:
    """The place in which `owner` was made. A sentence about it begins with `what`. `loop` is its
    own one, or that of its first use.
    """

    def __init__(
        self,
        owner: object,
        what: str,
        errors: HomeErrors,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = loop
        self._owner = weakref.ref(owner)
        self.what = what
        self._errors = errors
        self._pid = os.getpid()
        self._made_at = _caller()
        self._unclosed: weakref.finalize[..., Any] | None = None
        _homes.add(self)

    def check_process(self) -> None:
        """Raises ForkedError in a child that was forked later."""
        if self.is_forked:
            raise self._errors.forked(
                f"{self.what}, made at {self._place}, belongs to process {self._pid}, and this is "
                f"{os.getpid()}, a fork of it, which has none of its threads. Make another one "
                "here, after the fork: in gunicorn's post_fork, Celery's worker_process_init, or "
                "what multiprocessing calls"
            )

    def check(self) -> None:
        """Raises ForkedError, and WrongLoopError on another event loop than its own."""
        self.check_process()
        running = asyncio._get_running_loop()
        if self.loop not in (None, running):
            raise self._errors.other_loop(
                f"{self.what}, made at {self._place}, belongs to another event loop than this "
                "one. Make another one in each asyncio.run, and close it there, or do all in one "
                "asyncio.run"
            )
        self.loop = running

    @property
    def is_forked(self) -> bool:
        """True in a child that was forked later."""
        return os.getpid() != self._pid

    def opened(self, owner: object) -> None:
        """Has a ResourceWarning tell if `owner` is left without having been closed."""
        if self._unclosed is None:
            self._unclosed = weakref.finalize(owner, _warn, self.what, *self._made_at)

    def closed(self) -> None:
        """Notes that the owner was closed."""
        if self._unclosed is not None:
            self._unclosed.detach()

    def forked(self) -> None:
        """Notes that this is the child."""
        self.closed()
        owner = self._owner()
        if owner is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # never freed, not even at the end

    @property
    def _place(self) -> str:
        file, line = self._made_at
        return f"{file}:{line}"


_homes: weakref.WeakSet[Home] = weakref.WeakSet()


def _after_fork() -> None:
    for home in list(_homes):
        home.forked()


os.register_at_fork(after_in_child=_after_fork)


def _caller() -> tuple[str, int]:
    """Returns file and line of the caller of the SDK."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _warn(what: str, file: str, line: int) -> None:
    told = f"{what}, made at {file}:{line}, was never closed: close it, or use it in a with block"
    warnings.warn_explicit(told, ResourceWarning, file, line)
