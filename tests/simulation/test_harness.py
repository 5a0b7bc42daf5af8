"""The simulation finds planted bugs: each test breaks one rule and expects a seed to notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.channel import codec
from anabranch.core.bundles import evolve as units
from anabranch.core.bundles import propose
from anabranch.core.bundles.guards import SOURCE_SETTLED
from anabranch.core.bundles.machine import BUNDLES
from anabranch.core.bundles.unit import Move, UnitState
from anabranch.core.effects import Effect
from anabranch.core.log.records import Cause
from anabranch.core.log.state import Entity
from anabranch.core.node import NodeCore
from anabranch.core.proposal_throttle import ProposalThrottle
from anabranch.core.sessions.lease import Heartbeat, Lease
from anabranch.core.sessions.log_contact import LogContact
from anabranch.core.sessions.membership import ClusterMembership
from anabranch.core.sessions.session import Session
from anabranch.core.tenants import evolve as tenants
from simulation import cluster
from simulation.planted import first_violation
from simulation.run import simulate
from support.state_machines import without

pytestmark = pytest.mark.simulation

SEEDS_MAX = 200


def violation_found(expected: str, first_seed: int = 0) -> str:
    """The first violation that any seed finds; fails if none does, or another than expected.

    `first_seed`: one known to find what few others do, so that it is found soon.
    """
    found = first_violation(range(first_seed, first_seed + SEEDS_MAX)).violation
    assert expected in found
    return found


def test_a_lease_that_outlasts_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Lease.__init__
    monkeypatch.setattr(Lease, "__init__", lambda self, duration_s: begin(self, duration_s + 5.0))
    violation_found("two owners at once", first_seed=15)


def test_a_lease_that_revives(monkeypatch: pytest.MonkeyPatch) -> None:
    def renew(self: Lease, sent_at: float, now: float) -> None:
        self.begin(max(sent_at, now - self.remaining_s(now)))

    monkeypatch.setattr(Lease, "renew", renew)
    violation_found("")


@pytest.mark.parametrize(
    ("rule", "answer", "first_seed"),
    [("lost", False, 0), ("asks", False, 164), ("heard", None, 0), ("proposed", None, 41)],
)
def test_a_lease_that_outlasts_contact_with_the_log(
    monkeypatch: pytest.MonkeyPatch, rule: str, answer: object, first_seed: int
) -> None:
    """Without the whole rule, and without each part of it."""
    monkeypatch.setattr(LogContact, rule, lambda *_: answer)
    violation_found("not at rest", first_seed)


def test_silence_that_is_counted_without_reading_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = NodeCore.tick

    def impatient(self: NodeCore, now: float) -> list[Effect]:
        self.liveness.caught_up(now, now)
        return tick(self, now)

    monkeypatch.setattr(NodeCore, "tick", impatient)
    violation_found("two owners at once", first_seed=130)


def test_heartbeats_of_an_earlier_process_taken_for_own_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_own(self: ClusterMembership, beat: Heartbeat) -> bool:
        return beat.broker == self._settings.broker

    monkeypatch.setattr(ClusterMembership, "is_own", is_own)
    violation_found("")


def test_a_unit_handed_over_before_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reconcile = NodeCore._reconcile

    def hasty(self: NodeCore, name: str, now: float) -> Iterator[Effect]:
        unit = self.state.unit(name)
        if unit is not None and unit.state is UnitState.RELEASING and self.session:
            beat_of = self.liveness.beat_of
            step = propose.next_step(self.state, self.actor(), name, unit, beat_of, self._new_id)
            if step is not None:
                yield from self._propose(step, now)
        yield from reconcile(self, name, now)

    monkeypatch.setattr(NodeCore, "_reconcile", hasty)
    violation_found("while it served it")


def test_an_overridden_owner_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_BUNDLES", without(BUNDLES, SOURCE_SETTLED))
    monkeypatch.setattr(propose, "source_settled", lambda state, unit, evidence: True)
    violation_found("two owners at once", first_seed=113)


def test_versions_that_start_at_1_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (units, tenants):
        monkeypatch.setattr(module, "first_version", lambda offset: 1)
    violation_found("was meant for", first_seed=50)


def test_a_snapshot_that_forgets_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(entity: Entity) -> bytes:
        if isinstance(entity, Session):
            entity = Session(entity.version, True, entity.since_ms, 0, entity.proposal_id)
        return codec.encode_entity(entity)

    monkeypatch.setattr(cluster, "encode_entity", forgetful)
    violation_found("the snapshot at")


def test_a_fold_that_depends_on_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node in two stamps units with its own idea of time."""
    moved = units._moved
    calls = iter(range(1_000_000_000))

    def stamped(*args: object) -> object:
        unit, arrow, record, offset, timestamp_ms = args
        return moved(unit, arrow, record, offset, timestamp_ms + next(calls) % 2)  # type: ignore[arg-type, operator]

    monkeypatch.setattr(units, "_moved", stamped)
    violation_found("the view of")


def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that propose what the fold must refuse, and again whenever they read anything."""
    look_after = NodeCore._look_after

    def propose_nonsense(self: NodeCore, now: float) -> Iterator[Effect]:
        yield from look_after(self, now)
        if self.lease.holds(now):
            for name, unit in list(self.state.units_of(self.me)):
                actor, new_id = self.actor(), self._new_id()
                wrong = propose.move(actor, name, unit, Move.CREATE, new_id, Cause.UNKNOWN)
                yield from self._propose(wrong, now)

    monkeypatch.setattr(NodeCore, "_look_after", propose_nonsense)


def test_a_loop_of_rejected_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn(monkeypatch)
    monkeypatch.setattr(ProposalThrottle, "admits", lambda self, record, now: True)
    violation_found("records in one second")


def test_pacing_keeps_rejected_proposals_from_looping(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn(monkeypatch)
    reports = [simulate(seed) for seed in range(3)]
    assert not any("records in one second" in report.violation for report in reports)
    assert sum(report.rejected.get("ILLEGAL_MOVE", 0) for report in reports) > 100
