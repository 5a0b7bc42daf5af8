"""Makes the C library give large blocks of memory back to the system once they are freed.

glibc maps a large block by itself, and unmaps it as soon as it is freed. But the first such free
raises glibc's threshold (mallopt(3), M_MMAP_THRESHOLD): it then takes all blocks up to that size
from its heap. Only the end of a heap goes back, so any small block behind the large ones keeps
them. The payloads of long topic lists are such blocks. A node or proxy that had sent some kept tens
of MB that nothing counts.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE_BYTES: Final = 128 << 10  # glibc's threshold at the start
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
