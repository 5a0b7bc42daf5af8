"""The simulation finds planted bugs: each test breaks one rule and expects a seed to notice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from anabranch.channel import codec
from anabranch.core.bundles import machine as units
from anabranch.core.bundles import propose
from anabranch.core.bundles.guards import SOURCE_SETTLED
from anabranch.core.bundles.machine import BUNDLES
from anabranch.core.effects import Effect
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.log import conflicts
from anabranch.core.log.records import Cause
from anabranch.core.log.state import Entity
from anabranch.core.node import NodeCore
from anabranch.core.proposal_throttle import ProposalThrottle
from anabranch.core.sessions.lease import Lease
from anabranch.core.sessions.log_contact import LogContact
from anabranch.core.tenants import machine as tenants
from simulation import cluster
from simulation.planted import noticed
from support.state_machines import lead_elsewhere, without

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "cluster")


def test_a_lease_that_outlasts_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Lease.__init__
    monkeypatch.setattr(Lease, "__init__", lambda self, duration_s: begin(self, duration_s + 5.0))
    violation_found("two owners at once", first_seed=23)


@pytest.mark.parametrize(
    ("rule", "answer", "first_seed"),
    [("lost", False, 0), ("asks", False, 168), ("heard", None, 0), ("proposed", None, 41)],
)
def test_a_lease_that_outlasts_contact_with_the_log(
    monkeypatch: pytest.MonkeyPatch, rule: str, answer: object, first_seed: int
) -> None:
    """Without the whole rule, and without each part of it."""
    monkeypatch.setattr(LogContact, rule, lambda *_: answer)
    violation_found("not at rest", first_seed=first_seed)


def test_silence_that_is_counted_without_reading_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = NodeCore.tick

    def impatient(self: NodeCore, now: float) -> list[Effect]:
        self.liveness.caught_up(now, now)
        return tick(self, now)

    monkeypatch.setattr(NodeCore, "tick", impatient)
    violation_found("two owners at once", first_seed=196)


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


def test_a_machine_that_leads_past_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    owned = UnitState.OWNED
    lead_elsewhere(BUNDLES, owned, Move.RELEASE, owned, monkeypatch)
    violation_found("two owners at once")


def test_versions_that_start_at_1_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (units, tenants, conflicts):
        monkeypatch.setattr(module, "first_version", lambda offset: 1)
    violation_found("was meant for", first_seed=54)


def test_a_snapshot_that_forgets_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(entity: Entity) -> bytes:
        if isinstance(entity, Session):
            entity = Session(entity.version, True, entity.since_ms, 0, entity.proposal_id)
        return codec.encode_entity(entity)

    monkeypatch.setattr(cluster, "encode_entity", forgetful)
    violation_found("the snapshot at")


def test_a_loop_of_rejected_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(ProposalThrottle, "admits", lambda self, record, now: True)
    violation_found("records in one second")
