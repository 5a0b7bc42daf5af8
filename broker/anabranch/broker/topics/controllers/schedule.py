"""`TickSchedule`: picks the topics that have their turn in a tick, so that no tick takes long."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

_TURNS: Final = 10  # ticks in which every controller has its turn once, unless they are too many
_TURNS_MAX: Final = 250  # of one tick: 10,000 controllers have theirs in 40
_NAMES_MAX: Final = 2_000  # of one tick, most of which may be other nodes' topics
_LOOKS_MAX: Final = 200  # of one tick, at topics of this node


class TickSchedule:
    """One node's. `interval_s`: after which all of its namespaces are looked through again."""

    def __init__(self, interval_s: float, now: float) -> None:
        self._interval_s = interval_s
        self._again_at = now + interval_s
        self._controlled: OrderedDict[str, None] = OrderedDict()  # topics, the next one first
        self._namespaces: OrderedDict[str, None] = OrderedDict()  # to be looked through
        self._names: OrderedDict[str, None] = OrderedDict()  # of topics to be looked at
        self._due_ms: dict[str, float] = {}  # topics without a controller, by the log's clock
        self._dues: list[tuple[float, str]] = []  # a heap of these, and of what was due before

    def configure(self, interval_s: float, now: float) -> None:
        """The interval is this from now on."""
        self._interval_s = interval_s
        self._again_at = min(self._again_at, now + interval_s)

    def take_up(self, name: str) -> None:
        """The topic has a controller from now on."""
        self._controlled[name] = None

    def turns(self, is_controlled: Callable[[str], bool]) -> Iterator[str]:
        """Topics whose controllers have their turn in this tick; the others' are left out."""
        for _ in range(min(_TURNS_MAX, -(-len(self._controlled) // _TURNS))):
            name, _ = self._controlled.popitem(last=False)
            if is_controlled(name):
                self._controlled[name] = None
                yield name

    def remind(self, name: str, due_ms: float | None) -> None:
        """The topic is to be looked at when the log says that time; None: at no certain one."""
        if due_ms is None:
            self._due_ms.pop(name, None)
        elif self._due_ms.get(name) != due_ms:
            self._due_ms[name] = due_ms
            heapq.heappush(self._dues, (due_ms, name))

    def due(self, log_ms: int) -> Iterator[str]:
        """Topics whose time has come, some in each tick."""
        for _ in range(_LOOKS_MAX):
            if not self._dues or self._dues[0][0] > log_ms:
                return
            due_ms, name = heapq.heappop(self._dues)
            if self._due_ms.get(name) == due_ms:
                del self._due_ms[name]
                yield name

    def look_through(self, units: Iterable[str]) -> None:
        """The namespaces of these bundles are due, one in each tick."""
        self._namespaces.update((unit.rpartition("/")[0], None) for unit in units)

    def looks(
        self,
        now: float,
        units: Iterable[str],
        topics: Callable[[str], Iterable[str]],
        is_mine: Callable[[str], bool],
    ) -> Iterator[str]:
        """This node's topics to be looked at in this tick.

        `units`: the bundles it serves; `topics`: the names of a namespace's.
        """
        if now >= self._again_at:
            self._again_at = now + self._interval_s
            self.look_through(units)
        if self._namespaces:
            namespace, _ = self._namespaces.popitem(last=False)
            self._names.update(dict.fromkeys(topics(namespace)))
        left = _LOOKS_MAX
        for _ in range(min(_NAMES_MAX, len(self._names))):
            name, _ = self._names.popitem(last=False)
            if is_mine(name):
                yield name
                left -= 1
            if not left:
                return
