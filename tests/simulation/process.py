"""One broker: a real NodeCore and replica, in a process that can die, on a clock of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anabranch.channel.errors import LogTrimmedError
from anabranch.core.effects import (
    AppendRecord,
    BrokerState,
    CloseUnit,
    Effect,
    Halt,
    NodeSettings,
    OpenUnit,
    SendHeartbeat,
)
from anabranch.core.entities.unit import LEADERSHIP
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.state import Entity
from anabranch.core.node import NodeCore
from anabranch.core.sessions.lease import Heartbeat
from simulation.scheduler import Action, Life, Scheduler, ViolationError
from support.memory_log import MemoryReader

if TYPE_CHECKING:
    from simulation.cluster import Cluster

TICK_S = 0.25
READ_MAX = 500
DIRECTIONS = ("sends", "reads", "acks", "log_sends", "log_reads")
BEATS_BACK = 20  # how much of the heartbeats' topic a new process finds


class Link:
    """A broker's connection, each direction with its own fate, and so for the log alone."""

    def __init__(self, sched: Scheduler) -> None:
        self._sched = sched
        self._cut_until = dict.fromkeys(DIRECTIONS, 0.0)
        self.holds_back = False  # what is sent while cut off arrives later, or never

    def cut(self, direction: str, duration_s: float) -> None:
        until = self._sched.now + duration_s
        self._cut_until[direction] = max(self._cut_until[direction], until)

    def mend(self) -> None:
        self._cut_until = dict.fromkeys(self._cut_until, 0.0)

    def works(self, direction: str) -> bool:
        return self._sched.now >= self._cut_until[direction]


class Host(Protocol):
    """What one life of a process serves besides bundles."""

    def opened(self, unit: str) -> object:
        """It serves the unit from now on."""

    def close(self, unit: str) -> object:
        """It is to serve the unit no more; the process is told when it does not."""

    def folded(self, entries: Iterable[Folded]) -> None:
        """The view has read these."""

    def advance(self) -> None:
        """Time has passed."""


class World(Protocol):
    """Who uses a cluster for more than bundles."""

    def host(self, process: Process) -> Host | None:
        """For a process that starts; None: it serves bundles alone."""

    def process_ended(self, process: Process) -> None:
        """It has crashed, or left."""

    def folded(self, folded: Folded) -> None:
        """A record was judged; the truth has it."""

    def unsettled(self) -> list[str]:
        """What still keeps it from being at rest, in words."""

    def judge(self) -> None:
        """At rest: what can be judged of a whole run. Raises ViolationError."""

    def seen(self) -> dict[str, int]:
        """What the run has put it through."""


class Process(Life):
    """A broker id and the process that runs under it, if one does."""

    def __init__(self, cluster: Cluster, settings: NodeSettings, clock_rate: float) -> None:
        super().__init__(cluster.sched)
        self.settings = settings
        self.link = Link(cluster.sched)
        self.cluster = cluster
        self.alive = False
        self.leaves = False  # was asked to drain
        self.read_delay_s = 0.0
        self.core: NodeCore
        self.replica: MemoryReplica
        self.acting: frozenset[str] = frozenset()
        self._rate = clock_rate
        self._epoch_s = cluster.sched.rng.uniform(0.0, 1e6)
        self._ids = 0
        self._reader: MemoryReader
        self._beats_read = 0
        self._joined = False
        self._read_planned = False
        self._host: Host | None = None
        self.exiled = False  # cut off from the log for good
        self._flushed: tuple[list[tuple[str, Entity]], int] | None = None

    @property
    def name(self) -> str:
        return self.settings.broker

    @property
    def paused(self) -> bool:
        return self._stop.is_on

    @property
    def joined(self) -> bool:
        """Whether it has caught up with the log since it was started."""
        return self._joined

    def local_now(self) -> float:
        """This machine's monotonic clock."""
        return self._epoch_s + self._sched.now * self._rate

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        if self.alive:
            return
        self.life += 1
        self._epoch_s = self._sched.rng.uniform(0.0, 1e6)  # the machine may have been rebooted
        self.replica = MemoryReplica()
        self._load()
        self.core = NodeCore(self.settings, self.replica, self.new_id)
        self._reader = self.cluster.wal.reader(self.replica.next_offset)
        self._beats_read = max(0, len(self.cluster.beats) - BEATS_BACK)
        self._host = self.cluster.world.host(self) if self.cluster.world is not None else None
        self._joined = False
        self._read_planned = False
        self._stop.end()
        self.acting = frozenset()
        self.alive, self.leaves = True, False
        self._sched.note(f"{self.name} starts at {self.replica.next_offset}")
        self.plan_read()
        self.later(TICK_S, self._tick)

    def _load(self) -> None:
        """From its own disk if that is recent enough, else from the snapshot."""
        wal, snapshot = self.cluster.wal, self.cluster.snapshot
        if self._flushed is not None and self._flushed[1] >= wal.first_offset:
            self.replica.load(*self._flushed)
        elif snapshot is not None:
            self.replica.load(snapshot.entities(), snapshot.horizon)

    def crash(self, *, keeps_disk: bool = True) -> None:
        if self.alive:
            self._sched.note(f"{self.name} crashes")
            self._end(keeps_disk)

    def _end(self, keeps_disk: bool) -> None:
        self.alive = False
        self.acting = frozenset()
        if not keeps_disk:
            self._flushed = None
        if self.cluster.world is not None:
            self.cluster.world.process_ended(self)

    def flush(self) -> None:
        """The disk gets what memory holds now."""
        if self.alive and not self.paused:
            self._flushed = (list(self.replica.entities.items()), self.replica.next_offset)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self.name}#{self._ids}"

    # --- events -------------------------------------------------------------------------

    def run_in(self, life: int, action: Action) -> None:
        """Something from outside reaches the process that it was meant for, if that still lives."""
        if not self.alive or life != self.life:
            return
        if self.paused:
            self._stop.defer(partial(self.run_in, life, action))
            return
        held = self.core.lease.holds(self.local_now())
        action()
        if self.alive:
            self.cluster.checks.process_acted(self, held)

    def call(self, action: Action) -> None:
        """Something outside asks this process to do something now."""
        self.run_in(self.life, action)

    def look_up(self, unit: str) -> None:
        """A client asks for it, and it is assigned where it is free."""
        found, now = self.core.state.unit(unit), self.local_now()
        if found is not None and self.core.lease.holds(now):
            for record in self.core.assign(unit, found, self.core.candidates(now), now):
                self.append(record)

    def _tick(self) -> None:
        if self._joined:
            self.do(self.core.tick(self.local_now()))
            if self._host is not None and self.alive:
                self._host.advance()
        self.later(TICK_S / self._rate, self._tick)
        self.plan_read()

    def plan_read(self) -> None:
        """There may be news on the log."""
        if not self._read_planned and self.alive:
            self._read_planned = True
            delay_s = self.cluster.quick_s() / 2
            if self.read_delay_s:
                delay_s += self._sched.rng.uniform(0.0, self.read_delay_s)
            self.later(delay_s, self._read)

    def _read(self) -> None:
        self._read_planned = False
        if not self.link.works("reads"):
            return
        if self._sched.rng.random() < 0.5:  # two topics: either may be read first
            self._read_beats()
            self._read_wal()
        else:
            self._read_wal()
            self._read_beats()

    def _read_beats(self) -> None:
        fresh = self.cluster.beats[self._beats_read :]
        self._beats_read += len(fresh)
        again = self._sched.chance(self.cluster.plan.delivered_twice)
        for beat, log_ms in fresh + fresh if again else fresh:
            self.core.heard(beat, log_ms, self.local_now())

    def _read_wal(self) -> None:
        if not self.link.works("log_reads"):
            return
        try:
            entries = self._reader.poll(READ_MAX)
        except LogTrimmedError:
            self._sched.note(f"{self.name} finds its place trimmed")
            self._end(keeps_disk=False)
            self._sched.after(0.5, self.start)
            return
        if entries:
            record = self.cluster.record_at
            folded = [
                self.replica.read(record(entry), entry.offset, entry.timestamp_ms)
                for entry in entries
            ]
            self.cluster.checks.view_advanced(self)
            self.do(self.core.folded(folded, self.local_now()))
            if self._host is not None and self.alive:
                self._host.folded(folded)
            if self._sched.chance(self.cluster.plan.delivered_twice):
                self.do(self.core.folded(folded, self.local_now()))
        if not self._joined and self.alive:
            self._joined = True
            self.do(self.core.joined(self.local_now()))

    def acked(self, beat: Heartbeat) -> None:
        """The log has acknowledged a heartbeat."""

        def take() -> None:
            for _ in range(2 if self._sched.chance(self.cluster.plan.delivered_twice) else 1):
                self.core.beat_acked(beat, self.local_now())

        self.later(0.0, take)

    def drain(self) -> None:
        if self.alive and self._joined:
            self.leaves = True
            self.call(lambda: self.do(self.core.drain(self.local_now())))

    # --- effects ------------------------------------------------------------------------

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord(record):
                    self.append(record)
                case SendHeartbeat(beat):
                    self.cluster.send_beat(self, beat)
                case OpenUnit(unit) if self._host is not None and unit != LEADERSHIP:
                    self._host.opened(unit)
                case CloseUnit(unit) if self._host is not None and unit != LEADERSHIP:
                    self._host.close(unit)
                case CloseUnit(unit):
                    self.close(unit)
                case Halt(reason, clean):
                    self._sched.note(f"{self.name} halts: {reason}")
                    if not clean:
                        raise ViolationError(f"{self.name} halted: {reason}")
                    self._end(keeps_disk=True)
                case _:
                    pass

    def close(self, unit: str) -> None:
        """Nothing of the unit is served any more, before long."""
        self.later(self.cluster.closing_s(), partial(self._closed, unit))

    def _closed(self, unit: str) -> None:
        self.do(self.core.closed(unit, self.local_now()))

    def append(self, record: Record) -> None:
        self.cluster.send(self, record)

    # --- questions ----------------------------------------------------------------------

    def units_acted_on(self) -> frozenset[str]:
        """The units that this process may act on at this very instant, paused or not."""
        if not self.alive:
            return frozenset()
        now = self.local_now()
        if not self.core.lease.holds(now):
            return frozenset()
        return frozenset(unit for unit in self.core.serving if self.core.may_act(unit, now))

    @property
    def settled(self) -> bool:
        """Whether this process serves, and is at the end of the log."""
        return (
            self.alive
            and self._joined
            and self.core.mode is BrokerState.SERVING
            and self.core.lease.holds(self.local_now())
            and self.replica.next_offset == self.cluster.wal.end_offset
        )
