"""What is left in circles of objects, which take memory until Python's collector finds them."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CoroutineType, FrameType
from typing import Final

from anabranch.wire.server.server import Peer

_HOLDERS: Final = (BaseException, FrameType, CoroutineType, asyncio.Task, Peer)


@contextmanager
def nothing_left_in_a_circle() -> Iterator[None]:
    """Fails where anything that holds a request or a client is left in one."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(repr(each) for each in gc.garbage if isinstance(each, _HOLDERS))
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
