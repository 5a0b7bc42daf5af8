"""What the checks say does not rest on the fold they audit: a broken rule is found out by them."""

from __future__ import annotations

import msgspec

from anabranch.core.bundles.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.fold import evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import Record, UnitMove
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.tally import CheckName
from support.history import BROKERS, LIVENESS_MS, ready
from support.local_audit import audited, only, violated

FIRST, SECOND, THIRD = BROKERS


def test_a_second_owner_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.OWN:
            return _forced(state, record, offset, timestamp_ms, record.actor)
        return evolve(state, record, offset, timestamp_ms)

    history = ready(lax)
    name = history.units()[0]
    history.accepted(history.move(name, Move.OWN, SECOND))  # while the first still owns it
    only(
        history,
        CheckName.OWNERSHIP,
        f"{name}: given to {SECOND} while {FIRST} still held it",
        rule=lax,
    )


def test_a_skipped_version_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if offset != skipped:
            return outcome
        changes = tuple(
            (key, msgspec.structs.replace(entity, version=entity.version + 7) if entity else None)
            for key, entity in outcome.changes
        )
        return Outcome(outcome.verdict, changes)

    history = ready()
    skipped = history.next_offset
    history.rule = lax
    history.assign(history.units()[1], SECOND)
    assert violated(audited(history, rule=lax)) == [CheckName.VERSIONS]


def test_a_split_that_leaves_a_hole_in_the_ring_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if isinstance(record, UnitMove) and record.move is Move.SPLIT_COMMIT:
            return Outcome(outcome.verdict, outcome.changes[:-1])
        return outcome

    history = ready(lax)
    history.split(history.units()[0])
    only(history, CheckName.COVERAGE, "no bundle covers 0x20000000_0x40000000", rule=lax)


def test_a_repair_by_a_deposed_leader_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.RECLAIM:
            leader = state.unit(LEADERSHIP)
            epoch = leader.version if leader else 0
            record = msgspec.structs.replace(record, actor=FIRST, session=1, epoch=epoch)
        return evolve(state, record, offset, timestamp_ms)

    history = ready(lax)
    name = history.units()[1]
    history.assign(name, SECOND)
    last_ms = history.now_ms
    history.wait(LIVENESS_MS + 500)
    history.expire(SECOND, FIRST, last_ms)
    history.accepted(history.move(name, Move.RECLAIM, THIRD, broker=THIRD))
    history.own(name)
    only(history, CheckName.LEADERSHIP, f"RECLAIM by {THIRD}", rule=lax)


def test_an_owner_that_did_not_wait_for_an_overridden_one_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.OWN:
            return evolve(
                state, msgspec.structs.replace(record, evidence=1 << 40), offset, timestamp_ms
            )
        return evolve(state, record, offset, timestamp_ms)

    history = ready(lax)
    name = history.units()[0]
    history.accepted(history.move(name, Move.RELEASE, FIRST, broker=SECOND))
    history.accepted(history.move(name, Move.OVERRIDE, FIRST, broker=THIRD))
    history.own(name, evidence=1)
    only(history, CheckName.LEASES, "before b1:8080 had seen the override", rule=lax)


def _forced(
    state: StateReader, record: UnitMove, offset: int, timestamp_ms: int, owner: str
) -> Outcome:
    """A rule without guards: the actor becomes the owner."""
    unit = state.unit(record.unit)
    version = (unit.version if unit else 0) + 1
    after = Unit(
        UnitState.OWNED, owner, "", version, record.move, timestamp_ms, offset, record.proposal_id
    )
    return Outcome(Verdict.ACCEPTED, ((record.unit, after),))
