"""What must hold at every instant, and what must hold once the faults have stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from anabranch.core.bundles.guards import session_open
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import TopicMove
from anabranch.core.entities.unit import IN_FLIGHT, LEADERSHIP, Move, Unit, UnitState
from anabranch.core.fold.digests import Digest
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import ClusterSettings, Record, SessionChange, TopicChange, UnitMove
from anabranch.core.log.state import Entity, leader_of, live_bundles
from anabranch.core.log.verdicts import Verdict
from anabranch.core.ring import FULL_RING, HashRange, split_bundle_name, tiles
from simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.process import Process

RECORDS_PER_NODE_AND_SECOND_MAX = 120  # a loop of rejected proposals makes thousands


class Checks:
    """An observer with true time and perfect sight, which folds the log by itself as it grows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.truth = MemoryReplica()
        self._digests = [self.truth.digest]  # by next offset
        self._ranges: dict[str, tuple[str, HashRange]] = {}
        self._aims: dict[str, Entity | None] = {}  # proposal -> what its proposer saw under its key
        self._second = 0
        self._in_second = 0
        self.busiest_second = 0
        self.accepted: dict[str, int] = {}
        self.rejected: dict[str, int] = {}

    # --- every instant ------------------------------------------------------------------

    def process_acted(self, process: Process, held: bool) -> None:
        """After each event: nobody else acts on what this process may act on since.

        Only what this event added needs a look: without events, leases only lapse.
        """
        acting = process.units_acted_on()
        fresh = acting - process.acting if held else acting
        process.acting = acting
        if not fresh:
            return
        for other in self._cluster.processes:
            if other is process:
                continue
            for theirs in sorted(other.units_acted_on()):
                for ours in sorted(fresh):
                    if self._overlap(ours, theirs):
                        raise ViolationError(
                            f"two owners at once: {process.name} acts on {ours} and "
                            f"{other.name} on {theirs}"
                        )

    def _overlap(self, left: str, right: str) -> bool:
        (home, a), (other_home, b) = self._range(left), self._range(right)
        return home == other_home and a.lower < b.upper and b.lower < a.upper

    def _range(self, unit: str) -> tuple[str, HashRange]:
        if unit not in self._ranges:
            self._ranges[unit] = split_bundle_name(unit)
        return self._ranges[unit]

    def view_advanced(self, process: Process) -> None:
        replica = process.replica
        if replica.digest != self._digests[replica.next_offset]:
            raise ViolationError(f"the view of {process.name} differs at {replica.next_offset}")

    def digest_at(self, next_offset: int) -> Digest:
        return self._digests[next_offset]

    def appended(self, folded: Folded) -> None:
        """The log has grown by one entry, which `truth` has folded."""
        self._digests.append(self.truth.digest)
        second = int(self._cluster.sched.now)
        self._in_second = self._in_second + 1 if second == self._second else 1
        self._second = second
        self.busiest_second = max(self.busiest_second, self._in_second)
        if self._in_second > RECORDS_PER_NODE_AND_SECOND_MAX * len(self._cluster.processes):
            raise ViolationError(f"{self._in_second} records in one second; the last is {folded}")
        verdict = folded.outcome.verdict
        if verdict is not Verdict.ACCEPTED:
            self.rejected[verdict.name] = self.rejected.get(verdict.name, 0) + 1
            return
        kind = _kind(folded.record)
        self.accepted[kind] = self.accepted.get(kind, 0) + 1
        homes = {
            str(split_bundle_name(key)[0])
            for key, entity in folded.outcome.changes
            if key.count("/") == 2
            and ":" not in key
            and (entity is None or isinstance(entity, Unit))
        }
        for home in sorted(homes):
            parts = [split_bundle_name(name)[1] for name, _ in live_bundles(self.truth, home)]
            if self.truth.namespace(home) is not None and not tiles(parts, FULL_RING):
                raise ViolationError(f"the bundles of {home} do not tile the ring: {folded}")

    def proposed(self, process: Process, record: Record) -> None:
        seen = process.replica.entities.get(record.key)
        if isinstance(seen, Unit) and record.version == seen.version + 2:
            return  # it follows another of its proposer's: `meant` knows what it needs
        if not isinstance(record, SessionChange | ClusterSettings):
            # An append that may have failed is repeated; what it is meant for stays.
            self._aims.setdefault(record.proposal_id, seen)

    def meant(self, folded: Folded, before: Entity | None) -> None:
        """What wins changes what its proposer saw, not another thing of the same name."""
        record = folded.record
        if record is None or folded.outcome.verdict is not Verdict.ACCEPTED:
            return
        aim = self._aims.get(record.proposal_id)
        if isinstance(aim, Subscription) and isinstance(before, Subscription):
            # A prune takes marks back and leaves ends: no change of the subscription itself.
            before = msgspec.structs.replace(before, drained=aim.drained, positions=aim.positions)
        if aim is not None and aim != before:
            raise ViolationError(f"{record} was meant for {aim} and met {before}")
        given = (before.state, before.broker) if isinstance(before, Unit) else None
        owns = isinstance(record, UnitMove) and record.move is Move.OWN
        if owns and given != (UnitState.ASSIGNING, record.actor):
            raise ViolationError(f"{record} met {before}, which is not its to own")

    def handed_over(self, folded: Folded) -> None:
        """Who says that it gave a unit up has stopped serving it: not even closing is left."""
        record = folded.record
        if not isinstance(record, UnitMove) or record.move not in (Move.HAND_OVER, Move.FREE):
            return
        if folded.outcome.verdict is not Verdict.ACCEPTED:
            return
        for process in self._cluster.processes:
            serves = process.alive and record.unit in process.core.serving
            if serves and (process.name, process.core.session) == (record.actor, record.session):
                raise ViolationError(f"{process.name} handed {record.unit} over while it served it")

    # --- after the faults ---------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What still keeps the cluster from being at rest, in words."""
        settling = [p for p in self._cluster.processes if not p.exiled]
        found = [f"{p.name} is not serving" for p in settling if not p.settled]
        if found:
            return found
        leader, _ = leader_of(self.truth)
        if not leader or not session_open(self.truth, leader):
            found.append(f"no leader ({leader or 'none'})")
        acting = {p.name: p.units_acted_on() for p in self._cluster.processes}
        exiled = {p.name for p in self._cluster.processes if p.exiled}
        for name, entity in self.truth.entities.items():
            if not isinstance(entity, Unit) or name == LEADERSHIP:
                continue
            if entity.responsible in exiled:
                found.append(f"{name} is left to {entity.responsible}, which has no log")
            elif entity.state in IN_FLIGHT or entity.state is UnitState.FREE:
                found.append(f"{name} is {entity}")
            elif entity.state is UnitState.OWNED and name not in acting.get(entity.broker, ()):
                found.append(f"{name} is not served by its owner {entity.broker}")
        served = sum(len(units) for units in acting.values())
        owned = sum(
            isinstance(unit, Unit) and unit.state is UnitState.OWNED and name != LEADERSHIP
            for name, unit in self.truth.entities.items()
        )
        if not found and served != owned:
            found.append(f"{served} units are acted on, {owned} are owned")
        return found

    def views_agree(self) -> None:
        for process in self._cluster.processes:
            if not process.exiled and process.replica.entities != self.truth.entities:
                raise ViolationError(f"{process.name} does not hold what the whole log says")


def _kind(record: Record | None) -> str:
    """What a record does, for the count of what a run has seen."""
    if isinstance(record, UnitMove):
        return record.move.name
    if isinstance(record, TopicChange) and record.move is TopicMove.BEGIN:
        return f"TopicChange.{record.operation.name}"
    if isinstance(record, TopicChange):
        return f"TopicChange.{record.move.name}"
    if record is None or isinstance(record, ClusterSettings):
        return type(record).__name__
    return f"{type(record).__name__}.{record.op.name}"
