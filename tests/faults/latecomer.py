"""What a leader of an earlier epoch still had under way: it is in the log when others lead.

This process reads the log as nodes do. Once leadership has passed on, it writes what the former
leader would have written: the end of the session of a node that it took to be silent, under the
epoch in which it led. Nodes refuse that, as this process sees by its own fold.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Final

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import append_record
from anabranch.channel.log.kafka_log import KafkaLogReader, KafkaLogWriter
from anabranch.core.bundles import propose
from anabranch.core.bundles.propose import Actor
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import SessionChange
from anabranch.core.log.state import leader_of
from faults.history import History

EVERY_S: Final = 1.0
POLL_S: Final = 0.2
BATCH: Final = 5_000
PREFIX: Final = "anabranch."


class Latecomer:
    """Writes one such record a second, as long as there is anybody whom it could concern."""

    def __init__(self, bootstrap_servers: str, history: History) -> None:
        connection = KafkaConnection(bootstrap_servers)
        wal = Topics(PREFIX).wal
        self._reader = KafkaLogReader(connection, wal, 0)
        self._writer = KafkaLogWriter(connection, wal)
        self._history = history
        self._state = MemoryReplica()
        self._log_ms = 0
        self._led: list[tuple[str, int]] = []  # who led, and in which epoch; the last one does
        self._written: set[str] = set()
        self._next = 0.0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`."""
        while not self._stopping.is_set():
            await asyncio.to_thread(self._step)
        self._reader.close()
        self._writer.close()

    def _step(self) -> None:
        entries = self._reader.poll(BATCH, POLL_S)
        for entry in entries:
            found = self._state.read(entry.record(), entry.offset, entry.timestamp_ms)
            self._log_ms = entry.timestamp_ms
            leading = leader_of(self._state)
            if leading[1] and leading not in self._led:
                self._led.append(leading)
            if found.record is not None and found.record.proposal_id in self._written:
                self._history.say("late", offset=entry.offset, verdict=found.outcome.verdict.name)
        self._writer.serve(0.0)
        # What is the last word can be told only where the log stands still for a moment.
        if not entries and time.monotonic() >= self._next:
            record = late(self._state, self._led, self._log_ms)
            if record is not None:
                self._next = time.monotonic() + EVERY_S
                self._written.add(record.proposal_id)
                append_record(self._writer, record, lambda error: None)


def late(
    state: MemoryReplica, led: Sequence[tuple[str, int]], last_heard_ms: int
) -> SessionChange | None:
    """What a node that led, before the last one in `led` did, would have written: of those that
    lead neither now nor then, whoever owns most is silent. None if none of them owns anything.
    """
    leader, _ = leader_of(state)
    there = {broker: each.version for broker, each in state.sessions() if each.open}
    for former, epoch in reversed(led[:-1]):
        owners = [each for each in sorted(there) if state.unit_count(each)]
        others = [each for each in owners if each not in (former, leader)]
        if former != leader and former in there and others:
            actor = Actor(former, there[former], epoch)
            silent = max(others, key=state.unit_count)
            return propose.expiry(state, actor, silent, last_heard_ms, uuid.uuid4().hex)
    return None
