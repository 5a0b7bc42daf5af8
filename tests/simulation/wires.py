"""TCP between simulated clients and nodes: two transports of asyncio's kind, and what lies between.

Each direction holds `WINDOW` bytes: who writes more keeps the rest, until the other side reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.event_loop import SimulatedLoop
from simulation.scheduler import Action, Scheduler

WINDOW = 512  # bytes on their way, or not read by the other process
_HIGH, _LOW = 64 * 1024, 16 * 1024

InLife = Callable[[Action], None]  # runs something in a process, if it is the same one still


class End(asyncio.Transport):
    """One side's transport."""

    def __init__(self, wire: Wire, loop: SimulatedLoop, in_life: InLife, name: str) -> None:
        super().__init__({"peername": (name, 0)})
        self.wire = wire
        self.other: End
        self.reads = True  # False: a process that takes nothing from its socket
        self.buffer = bytearray()  # written, and not on its way
        self.moved_at = wire.sched.now  # something of what was written went, or nothing waited
        self.is_over = False
        self.protocol: Any = None
        self._loop = loop
        self._in_life = in_life
        self._inbox = bytearray()  # arrived, and not read
        self._on_way = 0
        self._arrives_at = 0.0
        self._marks = (_LOW, _HIGH)
        self._paused = False  # the protocol, which writes too much
        self._holds = False  # the protocol reads nothing for now
        self._closing = False
        self._ended_there = False  # the other side writes nothing any more

    # --- asyncio.Transport --------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.is_over or self._closing:
            return
        if not self.buffer:
            self.moved_at = self.wire.sched.now
        self.buffer += data
        self._weigh()
        self.pump()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self.buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._marks = (_LOW if low is None else low, _HIGH if high is None else high)
        self._weigh()

    def pause_reading(self) -> None:
        self._holds = True

    def resume_reading(self) -> None:
        self._holds = False
        self._loop.call_soon(self._read)

    def is_closing(self) -> bool:
        return self._closing or self.is_over

    def close(self) -> None:
        self._closing = True
        if not self.buffer:
            self._finish(None)

    def abort(self) -> None:
        self._finish(None)

    # --- what lies between --------------------------------------------------------------

    def pump(self) -> None:
        """Sends what there is room for."""
        room = WINDOW - self._on_way - len(self.other._inbox)
        if self.is_over or not self.buffer or room <= 0:
            return
        part = bytes(self.buffer[:room])
        del self.buffer[:room]
        self.moved_at = self.wire.sched.now
        self._on_way += len(part)
        self._arrives_at = max(self._arrives_at, self.wire.arrival())
        self.wire.sched.at(self._arrives_at, partial(self._arrive, part))
        if self._paused and len(self.buffer) <= self._marks[0]:
            self._paused = False
            self._loop.call_soon(self._resumed)
        if self._closing and not self.buffer:
            self._finish(None)

    def _arrive(self, part: bytes) -> None:
        self._on_way -= len(part)
        other = self.other
        if not other.is_over:
            other._inbox += part
            other._in_life(other._read)

    def _read(self) -> None:
        if self.is_over or self._holds or not self.reads or self.protocol is None:
            return
        data, self._inbox = bytes(self._inbox), bytearray()
        if data:
            self._loop.call(partial(self._give, data))
            self.wire.sched.after(self.wire.latency_s(), partial(self.other._in_life, self._room))
        if self._ended_there and not self._inbox:
            self._loop.call(self.protocol.eof_received)
            self._finish(None)

    def _give(self, data: bytes) -> None:
        """To the protocol, as it wants to have it."""
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        left = memoryview(data)
        while left and not self._holds and not self.is_over:
            buffer = memoryview(self.protocol.get_buffer(len(left)))
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self.protocol.buffer_updated(count)
            left = left[count:]
        self._inbox[:0] = left

    def _room(self) -> None:
        self.other._loop.call(self.other.pump)

    def _resumed(self) -> None:
        if not self.is_over:
            self.protocol.resume_writing()

    def _weigh(self) -> None:
        low, high = self._marks
        if not self._paused and len(self.buffer) > high:
            self._paused = True
        elif self._paused and len(self.buffer) <= low:
            self._paused = False
            self._loop.call_soon(self._resumed)

    # --- its end ------------------------------------------------------------------------

    def reset(self) -> None:
        """The connection broke."""
        self._in_life(
            partial(self._loop.call, partial(self._finish, ConnectionResetError("reset")))
        )

    def _finish(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.buffer.clear()
        self._loop.call_soon(self.protocol.connection_lost, error)
        self.wire.ended(self)


class Wire:
    """One connection. `latency_s`: how long something is under way; `held_until`: by a cut."""

    def __init__(
        self, sched: Scheduler, latency_s: Callable[[], float], held_until: Callable[[], float]
    ) -> None:
        self.sched = sched
        self.latency_s = latency_s
        self._held_until = held_until
        self.ends: tuple[End, End]

    def join(self, ours: End, theirs: End) -> None:
        """Both sides."""
        ours.other, theirs.other = theirs, ours
        self.ends = (ours, theirs)

    def arrival(self) -> float:
        """When something that is sent now is there."""
        return max(self.sched.now, self._held_until()) + self.latency_s()

    def ended(self, end: End) -> None:
        """The other side hears of it, behind what was sent."""
        self.sched.at(max(end._arrives_at, self.arrival()), partial(self._told, end.other))

    def _told(self, other: End) -> None:
        other._ended_there = True
        other._in_life(other._read)

    def break_off(self) -> None:
        """Both sides hear of it, each at a time of its own."""
        for end in self.ends:
            self.sched.after(self.sched.rng.uniform(0.0, 2.0), end.reset)

    def client_died(self) -> None:
        """The client's process is gone: its system says so, at once or later."""
        self.sched.after(self.sched.rng.uniform(0.0, 3.0), self.ends[1].reset)

    def node_died(self) -> None:
        """The node's process is gone: its system says so."""
        self.sched.after(self.sched.rng.uniform(0.0, 0.5), self.ends[0].reset)
