"""`ResourceMeter`: a node's use of its resources between two looks.

The resources of a broker's load data mean here:

- `cpu`: the node's own use, in percent of a core. It is the use of the node's container if that has
  a limit, else the use of its process, out of all cores. One thread decides everything in a node,
  and cannot use more than one core. So the share of time in which this thread ran or waited for a
  core counts instead, if it is more. A node whose cores others take is seen to be busy, too.
- `memory`: the container's if that has a limit, else the machine's, in MB.
- `direct_memory`: this process's own memory, in MB, of the same limit.
- `bandwidth_in`, `bandwidth_out`: the traffic of network interfaces that are real ones or a
  container's, in kbit/s. The limit is the setting's, else the kernel's word on them.

A resource that cannot be read has a limit of 0, which counts as no use at all.

A container's limits are those of Linux' control groups (version 2). A group's limit holds for all
groups below it. So the least limit on the way up to the root counts, with the use of the group that
it belongs to. Without any limit the machine is the limit.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import Resources, ResourceUsage

_MB: Final = 1 << 20
_PERCENT: Final = 100.0
_KBIT: Final = 1000.0
_ETHERNET: Final = "1"  # of the file `type` of a network interface
_NOTHING: Final = ResourceUsage(0.0, 0.0)


class _Counters(msgspec.Struct, frozen=True):
    at: float
    processor_s: float
    thread_s: float
    received: int
    sent: int


def memory_of(text: str) -> tuple[float, float]:
    r"""Bytes that are used, and that there are, of `/proc/meminfo`.

    >>> memory_of("MemTotal:  4096 kB\nMemFree:  100 kB\nMemAvailable:  1024 kB\n")
    (3145728.0, 4194304.0)
    """
    found = _named(text)
    total = found.get("MemTotal", 0.0)
    return max(0.0, total - found.get("MemAvailable", total)), total


def resident_of(text: str) -> float:
    """Bytes of a process that are in memory, of `/proc/self/status`."""
    return _named(text).get("VmRSS", 0.0)


def _named(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            found[name] = int(words[0]) * 1024.0
    return found


def traffic_of(text: str) -> dict[str, tuple[int, int]]:
    r"""Bytes received and sent by interface, of `/proc/net/dev`.

    >>> traffic_of("Inter-| x\n face |bytes\n eth0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n")
    {'eth0': (10, 20)}
    """
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        numbers = rest.split()
        if colon and len(numbers) > 8 and all(each.isdecimal() for each in numbers):
            found[name.strip()] = (int(numbers[0]), int(numbers[8]))
    return found


def thread_seconds(text: str) -> float:
    """Returns the seconds in which a thread ran or waited for a core, from its `schedstat`; 0 if
    unknown.
    """
    numbers = text.split()
    if len(numbers) < 2 or not all(each.isdecimal() for each in numbers):
        return 0.0
    return (int(numbers[0]) + int(numbers[1])) / 1e9


class GroupUse(msgspec.Struct, frozen=True):
    """One resource's limit, and the use of the control group that has this limit.

    Processor: cores, and seconds since the group was made. Memory: bytes, and bytes that cannot be
    given back.
    """

    limit: float
    used: float


class ControlGroups:
    """Those of this process. `proc` and `sys` are where the kernel shows them."""

    def __init__(self, proc: Path, sys: Path) -> None:
        self._root = sys / "fs/cgroup"
        found = (line[3:] for line in _read(proc / "self/cgroup").splitlines() if line[:3] == "0::")
        path = next(found, "/")
        self._path = "" if ".." in path else path.strip("/")

    def processor(self) -> GroupUse | None:
        """Cores, and seconds used; None where nothing limits them."""
        return self._least(_processor)

    def memory(self) -> GroupUse | None:
        """Bytes, without the pages of files that can be dropped; None where nothing limits them."""
        return self._least(_memory)

    def _least(self, read: Callable[[Path], GroupUse | None]) -> GroupUse | None:
        found = [use for folder in self._folders() if (use := read(folder)) is not None]
        return min(found, key=lambda use: use.limit, default=None)

    def _folders(self) -> Iterator[Path]:
        """From the group's own folder up to the root, which a container may see as its own."""
        path = self._root / self._path
        while path != self._root:
            yield path
            path = path.parent
        yield self._root


def _processor(folder: Path) -> GroupUse | None:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    used = _fields(_read(folder / "cpu.stat")).get("usage_usec")
    if used is None or not (quota.isdecimal() and period.isdecimal()):
        return None
    return GroupUse(int(quota) / int(period), used / 1e6) if int(quota) and int(period) else None


def _memory(folder: Path) -> GroupUse | None:
    most, used = (_read(folder / f"memory.{name}").strip() for name in ("max", "current"))
    if not (most.isdecimal() and used.isdecimal()):
        return None
    droppable = _fields(_read(folder / "memory.stat")).get("inactive_file", 0.0)
    return GroupUse(float(most), max(0.0, int(used) - droppable))


def _fields(text: str) -> dict[str, float]:
    """Numbers by name, of files that have one on each line."""
    lines = (line.partition(" ") for line in text.splitlines())
    return {name: float(value) for name, _, value in lines if value.strip().isdecimal()}


class ResourceMeter:
    """One node's meter.

    `thread`: the native id of the thread that decides. `nic_gbps`: the speed of a network
    interface, to be set if the kernel is not to be asked. `read` blocks, but shortly.
    """

    def __init__(
        self,
        thread: int,
        nic_gbps: float | None = None,
        now: Callable[[], float] = time.monotonic,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
    ) -> None:
        self._thread = f"self/task/{thread}/schedstat"
        self._now = now
        self._nic_gbps = nic_gbps
        self._proc = proc
        self._sys = sys
        self._groups = ControlGroups(proc, sys)
        self._before = self._count()

    def read(self) -> Resources:
        """Rates since the last call, or since the meter was made."""
        before, self._before = self._before, self._count()
        now = self._before
        elapsed_s = now.at - before.at
        memory, direct_memory = self._memory()
        if elapsed_s <= 0:
            return Resources(_NOTHING, memory, direct_memory, _NOTHING, _NOTHING)
        line = self._line_kbit()
        kbit = 8 / _KBIT / elapsed_s
        return Resources(
            cpu=self._cpu(before, now, elapsed_s),
            memory=memory,
            direct_memory=direct_memory,
            bandwidth_in=ResourceUsage(max(0, now.received - before.received) * kbit, line),
            bandwidth_out=ResourceUsage(max(0, now.sent - before.sent) * kbit, line),
        )

    def _cpu(self, before: _Counters, now: _Counters, elapsed_s: float) -> ResourceUsage:
        group = self._groups.processor()
        cores = group.limit if group else float(os.cpu_count() or 1)
        share = max(0.0, now.processor_s - before.processor_s) / elapsed_s
        thread_share = min(1.0, max(0.0, now.thread_s - before.thread_s) / elapsed_s)
        if thread_share > share / cores:
            return ResourceUsage(_PERCENT * thread_share, _PERCENT)
        return ResourceUsage(_PERCENT * share, _PERCENT * cores)

    def _memory(self) -> tuple[ResourceUsage, ResourceUsage]:
        group = self._groups.memory()
        if group is not None:
            used, most = group.used, group.limit
        else:
            used, most = memory_of(self._text("meminfo"))
        resident = resident_of(self._text("self/status"))
        limit = most / _MB
        return ResourceUsage(used / _MB, limit), ResourceUsage(resident / _MB, limit)

    def _count(self) -> _Counters:
        group = self._groups.processor()
        if group is not None:
            processor_s = group.used
        else:
            process = resource.getrusage(resource.RUSAGE_SELF)
            processor_s = process.ru_utime + process.ru_stime
        traffic = self._interfaces()
        return _Counters(
            self._now(),
            processor_s,
            thread_seconds(self._text(self._thread)),
            sum(received for received, _ in traffic.values()),
            sum(sent for _, sent in traffic.values()),
        )

    def _interfaces(self) -> Mapping[str, tuple[int, int]]:
        """Without those inside the machine: the loop-back, bridges, and the ends of containers'."""
        found = traffic_of(self._text("net/dev"))
        return {name: bytes_ for name, bytes_ in found.items() if self._leads_out(name)}

    def _leads_out(self, name: str) -> bool:
        """A device, or a container's end of a pair whose other end is outside."""
        folder = self._sys / "class/net" / name
        if _read(folder / "type").strip() != _ETHERNET:
            return False
        if (folder / "device").exists():
            return True
        is_paired = _read(folder / "iflink").strip() != _read(folder / "ifindex").strip()
        return is_paired and not name.startswith("veth")

    def _line_kbit(self) -> float:
        names = self._interfaces()
        if self._nic_gbps is not None:
            return len(names) * self._nic_gbps * 1e6
        return sum(self._speed_mbit(name) for name in names) * 1000.0

    def _speed_mbit(self, name: str) -> int:
        """Returns an interface's speed; 0 if the kernel knows none, which it says as -1 or not at
        all.
        """
        said = _read(self._sys / "class/net" / name / "speed").strip()
        return int(said) if said.isdecimal() else 0

    def _text(self, name: str) -> str:
        return _read(self._proc / name)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
