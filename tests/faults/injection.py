"""Injects the faults of a schedule, several at once, and heals each, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from faults import network
from faults.schedule import Fault, Kind
from faults.stack import STOP_S, Stack
from faults.tools import run, tools_of

LOG: Final = ("anabranch.wal", "0")  # the log's only partition
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
def _leader_killed(stack: Stack, fault: Fault) -> Iterator[str]:
    """Kills the broker that leads the log's partition."""
    leader = stack.parties.kafkas[int(_ask(stack, "leader", *LOG)) - 1]
    with _killed(stack, replace(fault, targets=(leader,))):
        yield leader


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
            _ask(stack, "in-sync")  # an operator waits for that between two restarts


@contextlib.contextmanager
def _disk_full(stack: Stack, fault: Fault) -> Iterator[None]:
    """A file of ours takes what is left on the target's disk: the kernel itself refuses then."""
    name = fault.targets[0]
    try:
        stack.disks.fill(name)
        yield
    finally:
        stack.disks.free(name)
        stack.start_what_ended(name)


def _ask(stack: Stack, *what: str) -> str:
    """What `kafka_client.py` answers, beside the brokers."""
    brokers = ",".join(f"{each}:9092" for each in stack.parties.kafkas)
    with tools_of(network=stack.network) as tools:
        return run(tools, f"python3 /faults/kafka_client.py {brokers} {' '.join(what)}")


_HOW: Final[dict[Kind, Disturbance]] = {
    Kind.KILL: _killed,
    Kind.PAUSE: _paused,
    Kind.RESTART: _restarted,
    Kind.ROLLING_RESTART: _restarted,
    Kind.DISK_FULL: _disk_full,
    Kind.LEADER_KILLED: _leader_killed,
    Kind.BELOW_MINIMUM: _killed,
    **{kind: network.disturbed for kind in Kind if kind.is_network},
}
