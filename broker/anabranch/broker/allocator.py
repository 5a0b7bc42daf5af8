"""What the C library does with large blocks of memory that are given back.

glibc maps them by themselves, and unmaps them at once. But when one was freed, it takes all that
are no larger from its heap from then on (mallopt(3), M_MMAP_THRESHOLD), and of a heap only the end
goes back: whatever small is behind them keeps them. The payloads of long lists of topics are such
blocks, so that a node or proxy that had sent some kept tens of MB that nothing counts.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE_BYTES: Final = 128 << 10  # as glibc begins
_OF_OPERATORS: Final = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def give_back_large_blocks() -> bool:
    """Has large blocks go back to the system whenever they are freed. To be called at the start.

    Does nothing, and returns False, where the environment has settings for the allocator, or the C
    library is none that can be told.
    """
    if any(name in os.environ for name in _OF_OPERATORS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))
