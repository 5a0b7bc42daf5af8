"""Standard streams that are closed, or whose other end is: no fault of anybody, and no news."""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_closed() -> None:
    """Puts /dev/null in the place of streams that the caller has closed (`>&-`): sys has None
    there.

    The next file to be opened would get its number, and be written to.
    """
    for name, mode in _STREAMS.items():
        if getattr(sys, name) is None:
            # The lowest free number, so the stream's own.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def can_be_asked() -> bool:
    """Returns whether a person is there to answer."""
    return sys.stdin.isatty()


def drop_unwritten() -> OSError | None:
    """Returns the error of an output that takes nothing any more (`| head`, a full disk), if one
    does.

    The rest of that output goes nowhere: the interpreter would try again at its end, and complain.
    """
    lost = None
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError as error:
            lost = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return lost
