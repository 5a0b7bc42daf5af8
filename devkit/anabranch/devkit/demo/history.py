"""What the log says happened, to hold the look-ups' answers and the crashes against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.state import Change
from anabranch.core.ring import split_bundle_name, topic_hash
from anabranch.devkit.demo.lookups import LookupSample

_BATCH_MAX: Final = 5_000
_POLL_S: Final = 0.25
_REPAIRS: Final = (Move.RECLAIM, Move.DISCARD, Move.OVERRIDE)
# A node answers from its view, which follows the log; so an answer may be this much out of date.
LAG_MS_MAX: Final = 1_000


class Tenure(msgspec.Struct):
    """A stretch of time in which one broker held a unit, by the log's clock."""

    broker: str
    since_ms: float
    until_ms: float = math.inf


class History:
    """Who held what and when, how long every hand-over took, and what the log rejected."""

    def __init__(self) -> None:
        self.records = 0
        self.verdicts: Counter[str] = Counter()
        self.hand_overs_ms: list[float] = []  # from RELEASE to the next owner
        self._held: dict[str, list[Tenure]] = {}
        self._released: dict[str, float] = {}

    def read(self, connection: KafkaConnection, topics: Topics) -> None:
        """Folds the whole log, which must not have been trimmed."""
        reader = KafkaLogReader(connection, topics.wal, 0)
        replica = MemoryReplica()
        try:
            _, end = reader.offsets(KAFKA_S_MAX)
            while reader.next_offset < end:
                for entry in reader.poll(_BATCH_MAX, _POLL_S):
                    self.take(replica.read(entry.record(), entry.offset, entry.timestamp_ms))
        finally:
            reader.close()

    def take(self, folded: Folded) -> None:
        """The next entry of the log."""
        self.records += 1
        self.verdicts[folded.outcome.verdict.name] += 1
        for change in folded.outcome.changes:
            self._change(change, folded.timestamp_ms)

    def _change(self, change: Change, at_ms: float) -> None:
        name, unit = change
        if unit is not None and not isinstance(unit, Unit):
            return
        holder = unit.holder if unit is not None else ""
        stretches = self._held.setdefault(name, [])
        if stretches and stretches[-1].until_ms == math.inf and stretches[-1].broker != holder:
            stretches[-1].until_ms = at_ms
        if holder and (not stretches or stretches[-1].until_ms != math.inf):
            stretches.append(Tenure(holder, at_ms))
        if unit is None:
            return
        if unit.move in _REPAIRS:
            self._released.pop(name, None)  # a crash came between: that is a fail-over
        elif unit.state is UnitState.RELEASING:
            self._released.setdefault(name, at_ms)
        elif unit.state is UnitState.OWNED and name in self._released:
            self.hand_overs_ms.append(at_ms - self._released.pop(name))
        elif unit.state in (UnitState.FREE, UnitState.DELETED):
            self._released.pop(name, None)

    def wrong(self, looked_up: Iterable[LookupSample]) -> list[LookupSample]:
        """Answers that name a broker which did not hold the topic's bundle around that time."""
        bundles: dict[str, list[tuple[str, list[Tenure]]]] = {}
        for name, stretches in self._held.items():
            bundles.setdefault(name.rpartition("/")[0], []).append((name, stretches))
        return [one for one in looked_up if not _held_by(one, bundles.get(one.namespace, []))]

    def taken_over_ms(self, broker: str, at_ms: float) -> list[float]:
        """For each bundle that a broker held when it was killed: until another one held it."""
        waits = []
        for name, stretches in self._held.items():
            for at, held in enumerate(stretches):
                if held.broker == broker and held.since_ms <= at_ms < held.until_ms:
                    later = stretches[at + 1 :]
                    if name.count("/") == 2 and later:
                        waits.append(later[0].since_ms - at_ms)
        return waits


def _held_by(one: LookupSample, bundles: Iterable[tuple[str, list[Tenure]]]) -> bool:
    position = topic_hash(one.topic)
    return any(
        held.broker == one.broker
        and held.since_ms <= one.answered_ms
        and held.until_ms >= one.sent_ms - LAG_MS_MAX
        for name, stretches in bundles
        if position in split_bundle_name(name)[1]
        for held in stretches
    )
