"""Processor time of all that a figure runs on one machine: nodes, Kafka, and what asks them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # places in a process's `stat`, after its name


class Spent(msgspec.Struct, frozen=True):
    """Seconds of processor time, by whom."""

    nodes_s: float
    kafka_s: float
    clients_s: float

    def each_ms(self, since: Spent, count: int) -> dict[str, float]:
        """Milliseconds since then for each of so many things that were done."""
        return {
            "nodes_ms": (self.nodes_s - since.nodes_s) * 1_000 / count,
            "kafka_ms": (self.kafka_s - since.kafka_s) * 1_000 / count,
            "clients_ms": (self.clients_s - since.clients_s) * 1_000 / count,
        }


def spent(nodes: Iterable[int]) -> Spent:
    """Until now: by the nodes, whose process ids are given, by all else that this process has
    started, which is Kafka, and by this process, which has the clients.
    """
    me, named = os.getpid(), frozenset(nodes)
    processes = dict(_processes())
    mine, found = {me}, 0
    while len(mine) > found:
        found = len(mine)
        mine |= {pid for pid, (parent, _) in processes.items() if parent in mine}
    used = {pid: processes[pid][1] for pid in mine if pid in processes}
    kafka = mine - named - {me}
    return Spent(
        sum(used.get(pid, 0.0) for pid in named),
        sum(used.get(pid, 0.0) for pid in kafka),
        used[me],
    )


def _processes() -> Iterable[tuple[int, tuple[int, float]]]:
    """Of each process: its parent, and the seconds that it has used."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            seconds = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
            yield int(folder.name), (int(fields[_PARENT]), seconds)
