"""How faults of disks are done.

A disk is full when a file of ours has taken what is left: the kernel itself refuses then. Slow and
read only are done by what is preloaded into the processes of a container.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from faults.schedule import Fault
from faults.stack import Stack


@contextlib.contextmanager
def full(stack: Stack, fault: Fault) -> Iterator[None]:
    """Leaves no room on the target's disk."""
    name = fault.targets[0]
    try:
        stack.disks.fill(name)
        yield
    finally:
        stack.disks.free(name)
        stack.start_what_ended(name)


@contextlib.contextmanager
def read_only(stack: Stack, fault: Fault) -> Iterator[None]:
    """Lets the target's disk refuse to be written."""
    name = fault.targets[0]
    stack.disk_controls[name].read_only()
    try:
        yield
    finally:
        stack.disk_controls[name].heal()
        stack.start_what_ended(name)


@contextlib.contextmanager
def slow(stack: Stack, fault: Fault) -> Iterator[None]:
    """Lets each write and sync of the target take longer."""
    control = stack.disk_controls[fault.targets[0]]
    control.slow(fault.strength)
    try:
        yield
    finally:
        control.heal()
