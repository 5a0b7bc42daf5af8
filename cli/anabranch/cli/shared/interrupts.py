"""Ctrl-C ends a command within seconds, with status 130, and leaves no child.

Python hears of a signal only after a call into C returns, and a clean-up may wait for Kafka. So a
thread hears of it too, by the byte that Python writes for each signal. It ends the process once the
time to tidy up is over. Code that takes the signal by an event loop calls `note`, because the loop
has that byte written to itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from anabranch.cli.shared.exit_status import ExitStatus

_TIDY_S: Final = 2.5
_HEARD_S_MAX: Final = 0.1
_OVER: Final = b"\0"  # no signal's number
# The descriptor that the thread listens to, and the event that it sets, while there is a thread.
_watched: list[tuple[int, threading.Event]] = []


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Bounds the time of a Ctrl-C while the block runs. Yields a function that says if there was
    one.

    Does nothing if the signal is ignored, as in the background of a script, or is for others.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    heard = threading.Event()
    thread = threading.Thread(target=_watch, args=(reading, heard), name="interrupts", daemon=True)
    thread.start()
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _watched.append((writing, heard))

    def is_heard() -> bool:
        if thread.is_alive():
            os.write(writing, _OVER)  # it comes behind a Ctrl-C that was there before
            thread.join()
        return heard.is_set()

    try:
        yield is_heard
    finally:
        signal.set_wakeup_fd(-1)
        is_heard()
        _watched.remove((writing, heard))
        os.close(writing)
        os.close(reading)


def note() -> None:
    """Says that a Ctrl-C came, if only an event loop was told of it."""
    for writing, _ in _watched:
        os.write(writing, bytes([signal.SIGINT]))


def was_heard() -> bool:
    """Returns whether a Ctrl-C has come: a call into C may make another error of it.

    Waits a moment for the thread, which may hear of it last.
    """
    return any(heard.wait(_HEARD_S_MAX) for _, heard in _watched)


def end() -> NoReturn:
    """Ends the process and all that it has started: nothing more is waited for."""
    for pid in _descendants():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(ExitStatus.INTERRUPTED)


def _watch(reading: int, heard: threading.Event) -> None:
    ends_at: float | None = None
    while True:
        left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        if not select.select([reading], [], [], left)[0]:
            end()
        said = os.read(reading, 64)
        if signal.SIGINT in said and ends_at is None:
            heard.set()
            ends_at = time.monotonic() + _TIDY_S
        if _OVER in said:
            return


def _descendants() -> list[int]:
    """Children and theirs. Without /proc none are known; those end by a pipe that is closed."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found
