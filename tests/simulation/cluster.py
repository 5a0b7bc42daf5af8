"""What all simulated brokers share: the log, the heartbeats, the snapshot and the network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from anabranch.channel.codec import decode_entity, encode_entity, encode_record, schema_header
from anabranch.channel.log.entries import Entry
from anabranch.core.fold import digests
from anabranch.core.log.records import Record
from anabranch.core.log.state import Entity
from anabranch.core.sessions.lease import Heartbeat
from simulation.checks import Checks
from simulation.plan import Plan, settings_of
from simulation.process import Process, World
from simulation.scheduler import Scheduler, ViolationError
from support.memory_log import MemoryLog

EPOCH_MS = 1_700_000_000_000
LATE_S_MAX = 10.0


class Snapshot(msgspec.Struct, frozen=True):
    """What the compacted topic holds: encoded states, and the offset that they stand for."""

    values: tuple[tuple[str, bytes], ...]
    horizon: int

    def entities(self) -> Iterator[tuple[str, Entity]]:
        return ((key, decode_entity(value)) for key, value in self.values)


class Cluster:
    """The whole world of one run."""

    def __init__(self, sched: Scheduler, plan: Plan) -> None:
        self.sched = sched
        self.plan = plan
        self.faults_over = False  # what they delayed still arrives
        self.wal = MemoryLog(self.log_ms)
        self.beats: list[tuple[Heartbeat, int]] = []
        self.snapshot: Snapshot | None = None
        self.checks = Checks(self)
        self.processes = [
            Process(self, settings_of(number), rate)
            for number, rate in enumerate(plan.clock_rates, start=1)
        ]
        self.world: World | None = None
        self._records: dict[int, Record | None] = {}
        self.entries: list[Entry] = []  # all that was ever appended, trimmed or not

    def log_ms(self) -> int:
        """The log's clock."""
        return EPOCH_MS + round(self.sched.now * 1000)

    @property
    def next_offset(self) -> int:
        """The offset that the next entry gets."""
        return len(self.entries)

    def record_at(self, entry: Entry) -> Record | None:
        """The record of an entry, decoded once for all readers."""
        if entry.offset not in self._records:
            self._records[entry.offset] = entry.record()
        return self._records[entry.offset]

    def read_up_to_ms(self, process: Process) -> int:
        """When the oldest entry was appended that the process has not read, or now."""
        unread = self.entries[process.replica.next_offset :]
        return unread[0].timestamp_ms if unread else self.log_ms()

    # --- the network --------------------------------------------------------------------

    def _latency_s(self) -> float:
        late = not self.faults_over and self.sched.chance(self.plan.append_late)
        return self.sched.rng.uniform(0.5, LATE_S_MAX) if late else self.quick_s()

    def quick_s(self) -> float:
        """A short delay of the network or of a process, with a tail."""
        slow = not self.faults_over and self.sched.chance(self.plan.slowness)
        return self.sched.rng.expovariate(2.0) if slow else self.sched.rng.uniform(0.001, 0.008)

    def _arrives(self, sender: Process, connected: bool) -> bool:
        if connected:
            return self.faults_over or not self.sched.chance(self.plan.append_lost)
        return sender.link.holds_back

    def _delay_s(self, connected: bool) -> float:
        """What is held back while its sender is cut off comes late, even if that has died since."""
        held_s = 0.0 if connected else self.sched.rng.uniform(0.5, LATE_S_MAX)
        return held_s + self._latency_s()

    def send(self, sender: Process, record: Record) -> None:
        """A proposal is on its way; it may arrive late, twice or never, and out of order."""
        self.checks.proposed(sender, record)
        value, key = encode_record(record), record.key.encode()
        schema = schema_header(record)[1]
        connected = sender.link.works("sends") and sender.link.works("log_sends")
        if not self._arrives(sender, connected):
            self.sched.note(f"lost {record.proposal_id}")
            return
        times = 1 + (not self.faults_over and self.sched.chance(self.plan.append_twice))
        for _ in range(times):
            self.sched.after(self._delay_s(connected), partial(self._append, key, value, schema))

    def scribble(self) -> None:
        """A stranger writes to the log what is no record."""
        self._append(self.sched.rng.randbytes(4), self.sched.rng.randbytes(40), None)

    def _append(self, key: bytes, value: bytes, schema: bytes | None) -> None:
        entry = self.wal.append_raw(key, value, schema)
        self.entries.append(entry)
        record = self.record_at(entry)
        before = self.checks.truth.entities.get(record.key) if record is not None else None
        folded = self.checks.truth.read(record, entry.offset, entry.timestamp_ms)
        self.sched.note(f"{entry.offset} {record} {folded.outcome.verdict.name}")
        self.checks.appended(folded)
        self.checks.meant(folded, before)
        self.checks.handed_over(folded)
        if self.world is not None:
            self.world.folded(folded)
        self._wake()

    def send_beat(self, sender: Process, beat: Heartbeat) -> None:
        connected = sender.link.works("sends")
        if self._arrives(sender, connected):
            self.sched.after(self._delay_s(connected), partial(self._publish, sender, beat))

    def _publish(self, sender: Process, beat: Heartbeat) -> None:
        self.beats.append((beat, self.log_ms()))
        self._wake()
        lost = not self.faults_over and self.sched.chance(self.plan.ack_lost)
        if not lost:
            self.sched.after(self.quick_s(), partial(self._acknowledge, sender, beat))

    def _acknowledge(self, sender: Process, beat: Heartbeat) -> None:
        if sender.link.works("acks"):
            sender.acked(beat)
        elif sender.link.holds_back:
            self.sched.after(self.sched.rng.uniform(0.5, LATE_S_MAX), partial(sender.acked, beat))

    def _wake(self) -> None:
        for process in self.processes:
            if process.link.works("reads"):
                process.plan_read()

    def closing_s(self) -> float:
        """How long it takes to stop serving a unit."""
        rng = self.sched.rng
        if not self.faults_over and self.sched.chance(self.plan.close_stuck):
            return rng.uniform(8.0, 25.0)
        slow = not self.faults_over and self.sched.chance(self.plan.close_slow)
        return rng.uniform(0.2, 3.0) if slow else rng.uniform(0.0, 0.02)

    # --- compaction ---------------------------------------------------------------------

    def compact(self) -> None:
        """A broker that believes to lead writes its state and trims the log.

        The transactional id of the compactor fences the older of two: the horizon never goes back.
        """
        leaders = [p for p in self.processes if p.alive and not p.paused and p.core.is_leader()]
        if not leaders:
            return
        replica = self.sched.rng.choice(leaders).replica
        horizon = replica.next_offset
        if self.snapshot is not None and horizon <= self.snapshot.horizon:
            return
        values = ((key, encode_entity(entity)) for key, entity in replica.entities.items())
        self.snapshot = Snapshot(tuple(values), horizon)
        replica.horizon = horizon
        kept = digests.of_entities(dict(self.snapshot.entities()))
        if kept != self.checks.digest_at(horizon):
            raise ViolationError(f"the snapshot at {horizon} differs from the log's fold")
        if self.sched.chance(0.7):
            self.wal.trim(self.sched.rng.randint(self.wal.first_offset, horizon))
        self.sched.note(f"compacted to {horizon}, the log starts at {self.wal.first_offset}")
