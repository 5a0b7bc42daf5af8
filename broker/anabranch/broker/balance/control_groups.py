"""A container's limits and use: control groups of Linux, version 1 and 2.

A group's limit holds for all groups below it. So the least limit on the way up to the root counts,
with the use of the group that it belongs to. Without any limit nothing is told: the machine is the
limit then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

_UNLIMITED_BYTES: Final = 1 << 60  # version 1 says "no limit" as the largest multiple of a page


class GroupUse(msgspec.Struct, frozen=True):
    """One resource's limit, and the use of the group that has this limit.

    Processor: cores, and seconds since the group was made. Memory: bytes, and bytes that cannot be
    given back.
    """

    limit: float
    used: float


def groups_of(text: str) -> dict[str, str]:
    r"""Paths by controller, of `/proc/self/cgroup`; version 2 has one path, under "".

    >>> groups_of("4:memory:/a\n3:cpu,cpuacct:/b\n0::/c\n")
    {'memory': '/a', 'cpu': '/b', 'cpuacct': '/b', '': '/c'}
    """
    found = {}
    for line in text.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def fields_of(text: str) -> dict[str, float]:
    r"""Numbers by name, of files that have one on each line.

    >>> fields_of("usage_usec 1200\nnr_periods 0\nodd\n")
    {'usage_usec': 1200.0, 'nr_periods': 0.0}
    """
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            found[name] = float(value)
    return found


def cores_of(text: str) -> float:
    """The processor limit that `cpu.max` states, in cores; 0 for none.

    >>> cores_of("150000 100000"), cores_of("max 100000")
    (1.5, 0.0)
    """
    quota, _, period = text.partition(" ")
    return _share(quota, period or "100000")


def _share(quota: str, period: str) -> float:
    if not quota.strip().isdecimal() or not period.strip().isdecimal() or not int(period):
        return 0.0
    return int(quota) / int(period)


def _bytes_of(text: str) -> float:
    value = text.strip()
    return float(value) if value.isdecimal() and int(value) < _UNLIMITED_BYTES else 0.0


class ControlGroups:
    """Those of this process. `proc` and `sys` are where the kernel shows them."""

    def __init__(self, proc: Path, sys: Path) -> None:
        self._paths = groups_of(_text(proc / "self/cgroup"))
        self._root = sys / "fs/cgroup"
        self._is_2 = (self._root / "cgroup.controllers").exists()

    def processor(self) -> GroupUse | None:
        """Cores, and seconds used; None where nothing limits them."""
        return self._least("cpu", self._processor_2 if self._is_2 else self._processor_1)

    def memory(self) -> GroupUse | None:
        """Bytes, without the pages of files that can be dropped; None where nothing limits them."""
        return self._least("memory", _memory_2 if self._is_2 else _memory_1)

    def _least(self, controller: str, read: Callable[[Path], GroupUse | None]) -> GroupUse | None:
        found = [use for folder in self._folders(controller) if (use := read(folder)) is not None]
        return min(found, key=lambda use: use.limit, default=None)

    def _folders(self, controller: str) -> Iterator[Path]:
        """From the group's own folder up to the root, which a container may see as its own."""
        root = self._root if self._is_2 else self._root / controller
        path = root / self._path(controller)
        while path != root:
            yield path
            path = path.parent
        yield root

    def _path(self, controller: str) -> str:
        path = self._paths.get("" if self._is_2 else controller, "/")
        return "" if ".." in path else path.strip("/")

    def _processor_1(self, folder: Path) -> GroupUse | None:
        cores = _share(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
        accounted = self._root / "cpuacct" / self._path("cpuacct")
        used = _text(accounted / "cpuacct.usage") or _text(folder / "cpuacct.usage")
        if not cores or not used.strip().isdecimal():
            return None
        return GroupUse(cores, int(used) / 1e9)

    @staticmethod
    def _processor_2(folder: Path) -> GroupUse | None:
        cores = cores_of(_text(folder / "cpu.max"))
        used = fields_of(_text(folder / "cpu.stat")).get("usage_usec")
        return GroupUse(cores, used / 1e6) if cores and used is not None else None


def _memory_1(folder: Path) -> GroupUse | None:
    return _memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _memory_2(folder: Path) -> GroupUse | None:
    return _memory(folder, "memory.max", "memory.current", "inactive_file")


def _memory(folder: Path, limit: str, current: str, droppable: str) -> GroupUse | None:
    most, used = _bytes_of(_text(folder / limit)), _bytes_of(_text(folder / current))
    if not most or not used:
        return None
    stat: Mapping[str, float] = fields_of(_text(folder / "memory.stat"))
    return GroupUse(most, max(0.0, used - stat.get(droppable, 0.0)))


def _text(path: Path) -> str:
    """Returns the file's text; "" if there is no file or it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
