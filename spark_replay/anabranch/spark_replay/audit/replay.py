"""One part of the divided replay: whole tenants in offset order, the cluster's records between.

No guard of a tenant's record reads another tenant's state (`records.scope_of`). So every part folds
its own tenants and, beside them, the few records of the whole cluster: sessions, leadership, the
cluster's settings. One part only, the primary one, counts, digests and compares cluster-wide
records. Snapshot values come among the records, at their horizon. (docs/decisions, "Dividing the
replay by tenant".)
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from anabranch.channel.codec import SCHEMA_HEADER, knows_record, read_entry, read_state
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.registry import MARKER
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.fold import digests
from anabranch.core.fold.digests import EMPTY, Digest
from anabranch.core.fold.evolve import UNREADABLE, evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import (
    ClusterSettings,
    NamespaceChange,
    PlacementPolicyChange,
    Record,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TopicChange,
    UnitMove,
    scope_of,
)
from anabranch.core.log.state import Change, Entity, FoldedState, StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.checks.bundles.balance import AUTOMATIC_FROM, Balance
from anabranch.spark_replay.audit.checks.bundles.coverage import Coverage
from anabranch.spark_replay.audit.checks.bundles.leases import Leases
from anabranch.spark_replay.audit.checks.bundles.ownership import Ownership
from anabranch.spark_replay.audit.checks.cluster.leadership import LEADERS_MOVES, Leadership
from anabranch.spark_replay.audit.checks.cluster.permissions import Permissions
from anabranch.spark_replay.audit.checks.cluster.settings import Given, Overrides
from anabranch.spark_replay.audit.checks.log.snapshot import SnapshotCheck
from anabranch.spark_replay.audit.checks.log.versions import Versions
from anabranch.spark_replay.audit.checks.topics.topic_checks import TopicChecks, TopicsLeft
from anabranch.spark_replay.audit.checks.unfinished import Unfinished, unfinished_at_end
from anabranch.spark_replay.audit.statistics import NOT_COUNTED, Figures, Statistics
from anabranch.spark_replay.audit.tally import CheckName, CheckTally

Rule = Callable[[StateReader, Record, int, int], Outcome]

SNAPSHOT_ROW: Final = 0  # before the record of the same offset
LOG_ROW: Final = 1
SCHEMA_NEEDED: Final = "schema needed"  # a part's word for it
# Before Python 3.12 an enum's member is looked up by a function; every record meets these.
_ACCEPTED: Final = Verdict.ACCEPTED
_NOT_PERMITTED: Final = Verdict.NOT_PERMITTED
_ASSIGN, _OWN, _SPLIT, _SPLIT_COMMIT = Move.ASSIGN, Move.OWN, Move.SPLIT, Move.SPLIT_COMMIT
_NEVER: Final = 1 << 62


class SchemaNeededError(Exception):
    """An unreadable entry may be a later release's. Only its schema header can tell."""


class ReplayPlan(msgspec.Struct, frozen=True):
    """The data that every part must have before it starts."""

    parts: int
    next_offset: int  # the end of the audited log
    horizon: int  # the place of the snapshot, -1 for none
    from_snapshot: bool  # the log before the horizon is gone
    checkpoints: tuple[int, ...]  # ascending offsets at which the digest is wanted
    beats: dict[str, list[int]]  # "broker session" -> log timestamps, ascending
    bin_ms: int
    tolerance_ms: int
    with_schemas: bool = True  # the rows bring their schema headers along
    passed_over: frozenset[int] = frozenset()  # offsets whose word of a newer release is not heard


class PartResult(msgspec.Struct):
    """The result of one part."""

    part: int
    records: int
    repeated: int  # rows that came again under an offset, and were left out
    tallies: dict[CheckName, CheckTally]
    digests: list[tuple[int, str]]  # offset -> what its keys add to the digest there
    unfinished: Unfinished
    topics: TopicsLeft
    given: list[Given]  # to settings
    figures: Figures
    entities: int
    last_ms: int


def part_of(scope: str, parts: int) -> int:
    """Returns the part that folds a scope. Spark divides the rows by the same function."""
    return zlib.crc32(scope.encode()) % parts if scope else 0


class PartReplay:
    """Folds the rows of one part in order. `rule` is the core's, or a broken one in a test."""

    def __init__(self, plan: ReplayPlan, part: int, rule: Rule = evolve) -> None:
        self._plan = plan
        self._part = part
        self._rule = rule
        primary = part == 0
        self._primary = primary
        beats = {_beat_key(name): times for name, times in plan.beats.items()}
        self.state = FoldedState()
        self._versions = Versions()
        self._ownership = Ownership()
        self._leases = Leases(beats, plan.tolerance_ms, primary=primary)
        self._leadership = Leadership(primary=primary)
        self._coverage = Coverage()
        self._permissions = Permissions(primary=primary)
        self._balance = Balance(plan.tolerance_ms)
        self._overrides = Overrides()
        self._topics = TopicChecks()
        self._snapshot = SnapshotCheck()
        self._statistics = Statistics(plan.bin_ms)
        self._again = 0
        self._last_offset = -1
        self._dirty: dict[str, None] = {}
        self._hashes: dict[str, int] = {}
        self._digests: list[tuple[int, str]] = []
        self._stops = sorted({*plan.checkpoints, plan.next_offset, max(plan.horizon, 0)})
        if plan.from_snapshot:
            self._stops = self._stops[bisect_left(self._stops, plan.horizon) :]
        self._stop = self._stops[0]
        self._started = not plan.from_snapshot

    # --- rows ---------------------------------------------------------------------------

    def feed(
        self,
        shared: Sequence[int],
        kinds: Sequence[int],
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        schemas: Sequence[bytes | None],
    ) -> None:
        """Folds the next rows, as columns of equal length."""
        state, rule = self.state, self._rule
        primary = self._primary
        last = self._last_offset
        verdicts: list[int] = []
        for common, kind, offset, timestamp_ms, key, value, schema in zip(
            shared, kinds, offsets, timestamps_ms, keys, values, schemas, strict=True
        ):
            counted = NOT_COUNTED
            if kind == SNAPSHOT_ROW:
                self._snapshot_row(key, value)
            elif offset <= last:
                self._again += not common or primary
            else:
                if offset >= self._stop:
                    self._reach(offset)
                last = offset
                record = read_entry(key, value)
                if record is None:
                    self._refuse_newer(offset, key, value, schema)
                    outcome = UNREADABLE
                else:
                    outcome = rule(state, record, offset, timestamp_ms)
                    if outcome.changes:
                        self._changed(offset, timestamp_ms, record, outcome)
                    elif outcome.verdict is _NOT_PERMITTED:
                        self._permissions.refused(offset, record, shared=bool(common))
                if primary or not common:
                    counted = outcome.verdict
            verdicts.append(counted)
        self._last_offset = last
        self._statistics.count(timestamps_ms, verdicts)

    def result(self) -> PartResult:
        """Returns the result at the end of the log."""
        self._reach(_NEVER)
        return PartResult(
            self._part,
            self._statistics.records,
            self._again,
            {
                CheckName.VERSIONS: self._versions.tally,
                CheckName.OWNERSHIP: self._ownership.tally,
                CheckName.LEASES: self._leases.tally,
                CheckName.LEADERSHIP: self._leadership.tally,
                CheckName.PERMISSIONS: self._permissions.tally,
                CheckName.COVERAGE: self._coverage.tally,
                CheckName.PLACEMENT: self._balance.destinations,
                CheckName.BALANCE: self._balance.moves,
                CheckName.SETTINGS: self._overrides.tally,
                **self._topics.tallies(),
                CheckName.SNAPSHOT: self._snapshot.tally,
            },
            self._digests,
            unfinished_at_end(self.state, self._owns, with_sessions=self._primary),
            self._topics.left(self.state),
            self._overrides.given,
            self._statistics.figures(),
            sum(1 for key in self.state.entities if self._owns(key)),
            self._statistics.last_ms,
        )

    def _refuse_newer(
        self, offset: int, key: bytes | None, value: bytes | None, schema: bytes | None
    ) -> None:
        """Raises NewerSchemaError if an unreadable entry claims to be a later release's."""
        if offset in self._plan.passed_over:
            return
        if not self._plan.with_schemas:
            if value is not None and value.startswith(MARKER) and not knows_record(value):
                raise SchemaNeededError(SCHEMA_NEEDED)
        elif schema is not None:
            try:
                read_entry(key, value, lambda: [(SCHEMA_HEADER, schema)])
            except NewerSchemaError as error:
                raise NewerSchemaError(error.schema, f"offset {offset} of the log") from None

    def _owns(self, key: str) -> bool:
        return part_of(scope_of(key), self._plan.parts) == self._part

    # --- accepted records ---------------------------------------------------------------

    def _changed(self, offset: int, timestamp_ms: int, record: Record, outcome: Outcome) -> None:
        changes = outcome.changes
        self.state.apply(changes)
        if outcome.verdict is not _ACCEPTED:
            self._versions.rejected(offset, record, outcome)
            return
        if type(record) is not UnitMove or record.principal:
            # Somebody may have asked for it, or it changes somebody's rights.
            shared = not scope_of(record.key)
            self._permissions.accepted(offset, record, changes, shared=shared)
        if type(record) is UnitMove and record.unit != LEADERSHIP:
            self._moved(offset, timestamp_ms, record, changes)
        elif type(record) is TopicChange or type(record) is SubscriptionChange:
            self._topical(offset, timestamp_ms, record, changes)
        elif scope_of(record.key):
            self._policy(offset, record, changes)
        else:
            self._shared(offset, timestamp_ms, record, changes)

    def _moved(
        self, offset: int, timestamp_ms: int, record: UnitMove, changes: tuple[Change, ...]
    ) -> None:
        dirty = self._dirty
        for key, _ in changes:
            dirty[key] = None
        move = record.move
        if move is _OWN:
            self._leases.owned(offset, timestamp_ms, record)
        elif move > _SPLIT_COMMIT and move in LEADERS_MOVES:
            self._leadership.used(offset, record)
            self._leases.taken(offset, record, self._ownership.holder(record.unit))
        self._versions.accepted(offset, record, changes)
        self._ownership.moved(offset, record, changes)
        self._coverage.accepted(offset, record, changes)
        if record.choice or record.cause >= AUTOMATIC_FROM:
            self._balance.moved(offset, timestamp_ms, record)
        if move is not _ASSIGN and move is not _SPLIT:
            self._statistics.moved(timestamp_ms, record, changes)

    def _policy(self, offset: int, record: Record, changes: tuple[Change, ...]) -> None:
        """Checks a record about a tenant or a namespace."""
        for key, _ in changes:
            self._dirty[key] = None
        self._versions.accepted(offset, record, changes)
        if type(record) is NamespaceChange:
            self._ownership.reshaped(offset, changes)
        self._coverage.accepted(offset, record, changes)

    def _topical(
        self,
        offset: int,
        timestamp_ms: int,
        record: TopicChange | SubscriptionChange,
        changes: tuple[Change, ...],
    ) -> None:
        """Checks a record about a scalable topic or a subscription."""
        for key, _ in changes:
            self._dirty[key] = None
        self._versions.accepted(offset, record, changes)
        bundle, _ = controller_of(self.state, record.topic)
        self._ownership.used(offset, record.key, bundle, record.actor)
        if type(record) is TopicChange:
            self._topics.topic(offset, record, changes)
            self._statistics.topic(timestamp_ms, record)
        elif type(record) is SubscriptionChange:
            self._topics.subscription(offset, record, changes)

    def _shared(
        self, offset: int, timestamp_ms: int, record: Record, changes: tuple[Change, ...]
    ) -> None:
        """Checks a record of the whole cluster. Only the primary part counts its results."""
        self._leadership.shared(offset, record)
        self._leases.shared(offset, timestamp_ms, record)
        if type(record) is SessionChange:
            self._ownership.session(record)
            self._statistics.session(timestamp_ms, record)
        elif type(record) is PlacementPolicyChange:
            self._balance.shared(timestamp_ms, record, changes)
        mine = tuple(change for change in changes if self._owns(change[0]))
        for key, _ in mine:
            self._dirty[key] = None
        if self._primary:
            self._versions.accepted(offset, record, mine)
            if type(record) is SettingChange:
                self._overrides.changed(offset, record, changes)
        if type(record) is ClusterSettings:
            for key, entity in mine:
                if entity is not None and not self._primary:
                    self._versions.start(key, entity)
                if entity is not None:
                    self._coverage.start(key, entity)
            self._coverage.started(offset)

    # --- snapshot and digests -----------------------------------------------------------

    def _snapshot_row(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        name = key.decode(errors="replace")
        if not self._plan.from_snapshot and not self._owns(name):
            return  # compared by the primary part
        if value is None:
            self._snapshot.row(name, None)
            return
        try:
            _, entity = read_state(key, value)
        except (UnreadableError, NewerSchemaError):
            # Nodes leave it out; if it was state, it will be missing.
            self._snapshot.unreadable(name)
            return
        self._snapshot.row(name, entity)

    def _reach(self, offset: int) -> None:
        """Makes the stops that are due, because everything before `offset` is folded."""
        while self._stop <= offset and self._stop < _NEVER:
            stop = self._stop
            if stop == self._plan.horizon:
                self._at_horizon()
            self._settle(stop)
            self._stops.pop(0)
            self._stop = self._stops[0] if self._stops else _NEVER

    def _at_horizon(self) -> None:
        if not self._plan.from_snapshot:
            folded = {k: e for k, e in self.state.entities.items() if self._owns(k)}
            self._snapshot.compare(self._plan.horizon, folded)
            return
        found = list(self._snapshot.latest.items())
        self.state.apply(found)
        for key, entity in found:
            self._leases.start(key, entity)
            self._leadership.start(key, entity)
            self._ownership.start(key, entity)
            self._balance.start(key, entity)
            self._permissions.start(key, entity)
            if self._owns(key):
                self._dirty[key] = None
                self._start_own(key, entity)
        self._coverage.started(self._plan.horizon)
        self._snapshot.latest.clear()

    def _start_own(self, key: str, entity: Entity) -> None:
        self._versions.start(key, entity)
        self._coverage.start(key, entity)
        self._topics.start(self._plan.horizon, key, entity)
        self._overrides.start(self._plan.horizon, key, entity)
        self._statistics.start(key, entity)

    def _settle(self, offset: int) -> None:
        """Sums up this part's additions to the digest since the last stop."""
        delta = 0
        entities, hashes = self.state.entities, self._hashes
        for key in self._dirty:
            if not self._owns(key):
                continue
            delta -= hashes.pop(key, 0)
            entity = entities.get(key)
            if entity is not None:
                hashes[key] = added = digests.entity_hash(key, entity)
                delta += added
        self._dirty.clear()
        if delta:
            change: Digest = digests.combined(EMPTY, Digest(delta))
            self._digests.append((offset, digests.to_hex(change)))


def _beat_key(name: str) -> tuple[str, int]:
    broker, _, session = name.rpartition(" ")
    return broker, int(session)
