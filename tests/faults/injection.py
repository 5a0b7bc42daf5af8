"""Injects the faults of a schedule, several at once, and heals each, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final

from faults import clock, disk, kafka, network
from faults.schedule import Fault, Kind
from faults.stack import NODE_IMAGE, STOP_S, Stack

# What it is entered with tells what the fault came to, where that is found out only then.
Disturbance = Callable[[Stack, Fault], AbstractContextManager[str | None]]


class Journal:
    """When each fault began and ended, by the clock that all containers of a host share."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._lock = threading.Lock()

    def say(self, what: str, fault: Fault, **more: Any) -> None:
        line = {
            "at": time.monotonic(),
            "what": what,
            "fault": fault.number,
            "kind": fault.kind.name,
            "target": " ".join(fault.targets),
            "why": str(fault),
            **more,
        }
        with self._lock:
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self._file.close()


def inject(stack: Stack, faults: tuple[Fault, ...]) -> None:
    """Injects them all and returns when the last one is healed. If one cannot be injected or
    healed, or the caller is interrupted, the others are healed at once.
    """
    journal = Journal(stack.folder / "faults.jsonl")
    over = threading.Event()
    free = {name: threading.Lock() for name in stack.addresses}
    began = time.monotonic()

    def suffer(fault: Fault) -> None:
        try:
            if over.wait(began + fault.at_s - time.monotonic()):
                return
            with ExitStack() as alone:
                for name in sorted(fault.targets):
                    alone.enter_context(free[name])
                if not over.is_set():
                    for name in fault.targets:
                        stack.await_running(name)
                    with _HOW[fault.kind](stack, fault) as found:
                        journal.say("begin", fault, **({"found": found} if found else {}))
                        if not fault.kind.ends_by_itself:
                            over.wait(fault.for_s)
                    journal.say("end", fault)
        except BaseException as error:
            journal.say("failed", fault, error=repr(error))
            over.set()
            raise

    with contextlib.closing(journal), ThreadPoolExecutor(max(1, len(faults))) as threads:
        try:
            under_way = [threads.submit(suffer, fault) for fault in faults]
            for each in under_way:
                each.result()
        finally:
            over.set()


@contextlib.contextmanager
def _killed(stack: Stack, fault: Fault) -> Iterator[None]:
    for name in fault.targets:
        stack.container(name).kill()
    try:
        yield
    finally:
        for name in fault.targets:
            stack.container(name).start()


@contextlib.contextmanager
def _paused(stack: Stack, fault: Fault) -> Iterator[None]:
    container = stack.container(fault.targets[0])
    container.pause()
    try:
        yield
    finally:
        container.unpause()


@contextlib.contextmanager
def _restarted(stack: Stack, fault: Fault) -> Iterator[None]:
    yield
    for name in fault.targets:
        stack.container(name).restart(timeout=STOP_S)
        if len(fault.targets) == 1:
            return
        if name in stack.parties.nodes:
            stack.await_ready(name)
        else:
            kafka.await_in_sync(stack)


@contextlib.contextmanager
def _of_another_release(stack: Stack, fault: Fault) -> Iterator[str]:
    """Downgrades and upgrades, or the other way round: as that release is older or newer."""
    yield stack.release
    for image in (stack.release, NODE_IMAGE):
        for name in fault.targets:
            stack.replace(name, image)


_HOW: Final[dict[Kind, Disturbance]] = {
    Kind.KILL: _killed,
    Kind.PAUSE: _paused,
    Kind.RESTART: _restarted,
    Kind.ROLLING_RESTART: _restarted,
    Kind.UNPLUG: network.unplugged,
    Kind.DISK_FULL: disk.full,
    Kind.DISK_READ_ONLY: disk.read_only,
    Kind.DISK_SLOW: disk.slow,
    Kind.CLOCK_STEP: clock.stepped,
    Kind.CLOCK_DRIFT: clock.drifting,
    Kind.LEADER_KILLED: kafka.leader_killed,
    Kind.LEADER_MOVED: kafka.leader_moved,
    Kind.BELOW_MINIMUM: _killed,
    Kind.SEALING_KILLED: kafka.sealing_controller_killed,
    Kind.OTHER_RELEASE: _of_another_release,
    **{kind: network.disturbed for kind in Kind if kind.is_network},
}
