"""How faults are done that want to know what Kafka or the log is at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from faults.schedule import Fault
from faults.stack import STOP_S, Stack
from faults.tools import run, tools_of

LOG: Final = ("anabranch.wal", "0")  # the log's only partition
SEAL_S: Final = 40  # how long a seal is waited for


def await_in_sync(stack: Stack) -> None:
    """Returns once every replica of every partition is in sync: what an operator waits for between
    two restarts.
    """
    _ask(stack, "in-sync")


@contextlib.contextmanager
def leader_killed(stack: Stack, fault: Fault) -> Iterator[str]:
    """Kills the broker that leads the log's partition."""
    leader = _leader(stack)
    stack.container(leader).kill()
    try:
        yield leader
    finally:
        stack.container(leader).start()


@contextlib.contextmanager
def leader_moved(stack: Stack, fault: Fault) -> Iterator[str]:
    """Stops the broker that leads the log's partition, so that it gives all it leads to others;
    once it is in sync again, the preferred leader is elected.
    """
    leader = _leader(stack)
    yield leader
    stack.container(leader).restart(timeout=STOP_S)
    await_in_sync(stack)
    _ask(stack, "elect", *LOG)


@contextlib.contextmanager
def sealing_controller_killed(stack: Stack, fault: Fault) -> Iterator[str]:
    """Kills the node that has just written that it seals a topic's segments, before they are."""
    sealing = _sealing(stack)
    if sealing is None:
        yield "nothing was sealed"
        return
    node, offset = sealing
    stack.container(node).kill()
    try:
        yield f"{node}, sealing at offset {offset}"
    finally:
        stack.container(node).start()


def _leader(stack: Stack) -> str:
    return stack.parties.kafkas[int(_ask(stack, "leader", *LOG)) - 1]


def _sealing(stack: Stack) -> tuple[str, int] | None:
    """The node that writes the next SEALING, as soon as it is in the log, and where."""
    follow = ["timeout", str(SEAL_S), "anabranch", "log", "tail", "--from", "end", "--json"]
    settings = {"ANABRANCH_BOOTSTRAP_SERVERS": _brokers(stack)}
    with tools_of(network=stack.network, environment=settings) as tools:
        _, said = tools.exec_run(follow, stream=True, stderr=False)
        rest = b""
        for piece in said:
            *lines, rest = (rest + piece).split(b"\n")
            for line in map(json.loads, lines):
                record = line["record"] or {}
                if line["verdict"] == "ACCEPTED" and record.get("move") == "SEALING":
                    return record["actor"].partition(":")[0], line["offset"]
    return None


def _ask(stack: Stack, *what: str) -> str:
    """What `kafka_client.py` answers, beside the brokers."""
    with tools_of(network=stack.network) as tools:
        return run(tools, f"python3 /faults/kafka_client.py {_brokers(stack)} {' '.join(what)}")


def _brokers(stack: Stack) -> str:
    return ",".join(f"{each}:9092" for each in stack.parties.kafkas)
