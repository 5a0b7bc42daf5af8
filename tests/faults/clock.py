"""How faults of clocks are done: by what is preloaded into the processes of a container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from faults.schedule import Fault
from faults.stack import Stack


@contextlib.contextmanager
def stepped(stack: Stack, fault: Fault) -> Iterator[None]:
    """Steps the target's real time, and back."""
    clock = stack.clocks[fault.targets[0]]
    clock.step(fault.strength)
    try:
        yield
    finally:
        clock.step(0)


@contextlib.contextmanager
def drifting(stack: Stack, fault: Fault) -> Iterator[None]:
    """Lets all of the target's clocks run at another rate; how far they are off then, stays."""
    clock = stack.clocks[fault.targets[0]]
    clock.drift(fault.strength)
    try:
        yield
    finally:
        clock.drift(1)
