"""A sound history passes every check; each planted violation is found by exactly its check."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.channel.codec import encode_entity
from anabranch.core.fold import Outcome, evolve
from anabranch.core.records import (
    NamespaceChange,
    Record,
    SessionChange,
    SessionOp,
    UnitMove,
)
from anabranch.core.state import StateReader
from anabranch.core.units import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.verdicts import Verdict
from anabranch.spark_replay.checks.offsets import Chunk
from anabranch.spark_replay.tally import CheckName
from anabranch.spark_replay.verdict import CheckResult
from support.history import BROKERS, DEFAULT, LIVENESS_MS, History, mixed
from support.local_audit import audited, violated, witness

FIRST, SECOND, THIRD = BROKERS


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_sound_history_passes_every_check_however_it_is_divided(parts: int) -> None:
    history = mixed(rounds=3)
    middle = history.snapshot()
    name = history.units("acme/orders")[0]
    history.transfer(name, history.elsewhere(name))
    findings = audited(history, parts=parts, snapshot=middle)
    assert violated(findings) == []
    assert all(check.result is CheckResult.OK for check in findings.checks)
    assert findings.records == history.next_offset
    assert findings.entities == len(history.state.entities)
    assert int(findings.final_digest, 16) == history.state.digest


def test_the_figures_count_every_record_with_its_verdict() -> None:
    history = mixed(rounds=2)
    counts = audited(history).figures.counts
    assert sum(counts.values()) == history.next_offset
    by_verdict = dict.fromkeys(Verdict, 0)
    for key, count in counts.items():
        by_verdict[Verdict(key % 100)] += count
    readable = [entry.outcome.verdict for entry in history.folded]
    assert by_verdict[Verdict.ACCEPTED] == readable.count(Verdict.ACCEPTED)
    assert by_verdict[Verdict.STALE_VERSION] == readable.count(Verdict.STALE_VERSION) > 0
    assert by_verdict[Verdict.UNREADABLE] == 2


def test_hand_over_and_fail_over_are_measured_on_the_logs_clock() -> None:
    history = _ready()
    name = history.units()[0]
    history.transfer(name, SECOND)
    history.fail(SECOND, FIRST)
    figures = audited(history).figures
    assert figures.hand_overs == {20: 1}
    (last_sign,) = figures.last_signs
    assert last_sign >= LIVENESS_MS
    assert sum(figures.fail_overs.values()) == 1


def test_a_unit_that_moves_too_often_flaps() -> None:
    history = _ready()
    name = history.units()[0]
    for number in range(8):
        history.transfer(name, BROKERS[(number + 1) % 3])
    figures = audited(history).figures
    assert [flap.unit for flap in figures.flaps] == [name]
    assert figures.flaps[0].moves == 8


# --- planted in the log ---------------------------------------------------------------------


def test_a_missing_offset_is_found() -> None:
    history = mixed()
    unreadable = next(e for e in history.entries if e.schema is None)
    history.entries.remove(unreadable)  # its loss changes no state
    findings = audited(history, chunks=[_chunk(history)])
    assert violated(findings) == [CheckName.OFFSETS]
    assert "missing" in witness(findings, CheckName.OFFSETS)


def _chunk(history: History) -> Chunk:
    offsets = [entry.offset for entry in history.entries]
    return Chunk(min(offsets), max(offsets), len(offsets), len(set(offsets)))


def test_a_session_that_was_expired_too_early_is_found() -> None:
    history = _ready()
    history.assign(history.units()[1], SECOND)
    history.expire(SECOND, FIRST, evidence_ms=history.now_ms - 100)
    history.wait(LIVENESS_MS)
    history.repair(FIRST)
    findings = audited(history)
    assert violated(findings) == [CheckName.LEASES]
    assert "before the liveness time-out" in witness(findings, CheckName.LEASES)


def test_an_owner_before_the_former_ones_lease_had_lapsed_is_found() -> None:
    history = _ready()
    name = history.units()[1]
    history.assign(name, SECOND)
    history.wait(20)
    history.expire(SECOND, FIRST, evidence_ms=history.now_ms)
    history.repair(FIRST)
    findings = audited(history)
    assert violated(findings) == [CheckName.LEASES]
    checks = {check.name: check for check in findings.checks}
    assert any(
        "before the lease of b2:8080 had lapsed" in found.text
        for found in checks[CheckName.LEASES].witnesses
    )


def test_evidence_that_a_later_heartbeat_contradicts_is_found() -> None:
    history = _ready()
    history.assign(history.units()[1], SECOND)
    last_ms = history.now_ms
    for _ in range(14):
        history.wait(500)
        history.beat(SECOND)  # alive all the time
    history.expire(SECOND, FIRST, evidence_ms=last_ms)
    findings = audited(history)
    assert violated(findings) == [CheckName.LEASES]


def test_a_unit_left_in_flight_is_found() -> None:
    history = _ready()
    name = history.units()[1]
    history.accepted(history.move(name, Move.ASSIGN, FIRST, broker=SECOND))
    history.wait(300_000)
    for broker in BROKERS:
        history.beat(broker)
    findings = audited(history)
    assert violated(findings) == [CheckName.STUCK]
    assert f"{name}: ASSIGNING for 300.0 s, waiting for {SECOND}" in witness(
        findings, CheckName.STUCK
    )


def test_a_unit_left_with_a_broker_whose_session_is_over_is_found() -> None:
    history = _ready()
    name = history.units()[1]
    history.assign(name, SECOND)
    last_ms = history.now_ms
    history.wait(LIVENESS_MS + 500)
    history.expire(SECOND, FIRST, last_ms)
    history.wait(60_000)
    history.beat(FIRST)
    findings = audited(history)
    assert violated(findings) == [CheckName.ORPHANS]
    assert f"{name}: OWNED with {SECOND}" in witness(findings, CheckName.ORPHANS)


def test_a_broker_that_is_silent_in_an_open_session_while_others_live_is_found() -> None:
    history = _ready()
    history.assign(history.units()[1], SECOND)
    history.beat(SECOND)
    history.wait(120_000)
    history.beat(FIRST)
    findings = audited(history)
    assert violated(findings) == [CheckName.ORPHANS]
    assert "has been silent" in witness(findings, CheckName.ORPHANS)


def test_a_cluster_that_was_stopped_as_a_whole_leaves_no_orphans() -> None:
    history = _ready()
    history.beat(FIRST)
    assert violated(audited(history)) == []


@pytest.mark.parametrize("fault", ["other", "missing", "too much", "damaged"])
def test_a_snapshot_that_differs_from_the_fold_is_found(fault: str) -> None:
    history = mixed()
    taken = history.snapshot()
    name = history.units("globex/orders")[-1]
    unit = history.unit(name)
    match fault:
        case "other":
            other = msgspec.structs.replace(unit, broker="b9:8080")
            taken.values[name] = encode_entity(other)
        case "missing":
            del taken.values[name]
        case "too much":
            taken.values["globex/orders/0x00000000_0x00000001"] = encode_entity(unit)
        case "damaged":
            taken.values[name] = b"\x00"
    history.wait(10)
    findings = audited(history, snapshot=taken)
    assert violated(findings) == [CheckName.SNAPSHOT]
    assert "globex/orders" in witness(findings, CheckName.SNAPSHOT)


def test_a_snapshot_with_a_false_digest_is_found() -> None:
    history = mixed()
    taken = history.snapshot()
    false = msgspec.structs.replace(taken.horizon, digest="0" * 32)
    findings = audited(history, snapshot=msgspec.structs.replace(taken, horizon=false))
    assert violated(findings) == [CheckName.SNAPSHOT]


def test_a_node_with_a_false_digest_is_found() -> None:
    history = mixed()
    history.beat(SECOND, digest="f" * 32)
    findings = audited(history)
    assert violated(findings) == [CheckName.DIGESTS]
    assert SECOND in witness(findings, CheckName.DIGESTS)


# --- planted in the rule: what the checks say must not rest on the fold they audit -----------


def test_a_second_owner_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.OWN:
            return _forced(state, record, offset, timestamp_ms, record.actor)
        return evolve(state, record, offset, timestamp_ms)

    history = _ready(lax)
    name = history.units()[0]
    history.accepted(history.move(name, Move.OWN, SECOND))  # while the first still owns it
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.OWNERSHIP]
    assert f"{name}: given to {SECOND} while {FIRST} still held it" in witness(
        findings, CheckName.OWNERSHIP
    )


def test_a_unit_given_up_by_someone_else_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.HAND_OVER:
            unit = state.unit(record.unit)
            record = msgspec.structs.replace(record, actor=unit.source if unit else "")
            record = msgspec.structs.replace(record, session=1)
        return evolve(state, record, offset, timestamp_ms)

    history = _ready(lax)
    name = history.units()[0]
    history.accepted(history.move(name, Move.RELEASE, FIRST, broker=SECOND))
    history.accepted(history.move(name, Move.HAND_OVER, THIRD))  # the first serves on
    history.own(name)
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.OWNERSHIP]


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

    history = _ready()
    skipped = history.next_offset
    history.rule = lax
    history.assign(history.units()[1], SECOND)
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.VERSIONS]


def test_a_split_that_leaves_a_hole_in_the_ring_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if isinstance(record, UnitMove) and record.move is Move.SPLIT_COMMIT:
            return Outcome(outcome.verdict, outcome.changes[:-1])
        return outcome

    history = _ready(lax)
    history.split(history.units()[0])
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.COVERAGE]
    assert "no bundle covers 0x20000000_0x40000000" in witness(findings, CheckName.COVERAGE)


def test_a_namespace_whose_bundles_overlap_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if isinstance(record, NamespaceChange) and outcome.changes:
            unit = outcome.changes[-1][1]
            more = (f"{record.namespace}/0x00000000_0x00000010", unit)
            return Outcome(outcome.verdict, (*outcome.changes, more))
        return outcome

    history = _ready(lax)
    history.namespace("public/other")
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.COVERAGE]
    assert "more than one bundle covers" in witness(findings, CheckName.COVERAGE)


def test_a_repair_by_a_deposed_leader_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.RECLAIM:
            leader = state.unit(LEADERSHIP)
            epoch = leader.version if leader else 0
            record = msgspec.structs.replace(record, actor=FIRST, session=1, epoch=epoch)
        return evolve(state, record, offset, timestamp_ms)

    history = _ready(lax)
    name = history.units()[1]
    history.assign(name, SECOND)
    last_ms = history.now_ms
    history.wait(LIVENESS_MS + 500)
    history.expire(SECOND, FIRST, last_ms)
    history.accepted(history.move(name, Move.RECLAIM, THIRD, broker=THIRD))
    history.own(name)
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.LEADERSHIP]
    assert f"RECLAIM by {THIRD}" in witness(findings, CheckName.LEADERSHIP)


def test_a_second_leader_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.SUCCEED:
            return _forced(state, record, offset, timestamp_ms, record.actor)
        return evolve(state, record, offset, timestamp_ms)

    history = _ready(lax)
    history.accepted(history.move(LEADERSHIP, Move.SUCCEED, SECOND))
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.LEADERSHIP]
    assert f"{SECOND} became leader while {FIRST} led" in witness(findings, CheckName.LEADERSHIP)


def test_an_owner_that_did_not_wait_for_an_overridden_one_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, UnitMove) and record.move is Move.OWN:
            return evolve(
                state, msgspec.structs.replace(record, evidence=1 << 40), offset, timestamp_ms
            )
        return evolve(state, record, offset, timestamp_ms)

    history = _ready(lax)
    name = history.units()[0]
    history.accepted(history.move(name, Move.RELEASE, FIRST, broker=SECOND))
    history.accepted(history.move(name, Move.OVERRIDE, FIRST, broker=THIRD))
    history.own(name, evidence=1)
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.LEASES]
    assert "before b1:8080 had seen the override" in witness(findings, CheckName.LEASES)


def _ready(rule: object = evolve) -> History:
    """Three brokers; the first leads and owns the first bundle."""
    history = History(rule)  # type: ignore[arg-type]
    history.found()
    history.assign(history.units(DEFAULT)[0], FIRST)
    return history


def _forced(
    state: StateReader, record: UnitMove, offset: int, timestamp_ms: int, owner: str
) -> Outcome:
    """A rule without guards: the actor becomes the owner."""
    unit = state.unit(record.unit)
    version = (unit.version if unit else 0) + 1
    after = Unit(
        UnitState.OWNED,
        owner,
        "",
        version,
        record.move,
        timestamp_ms,
        offset,
        record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.unit, after),))


# --- limits ---------------------------------------------------------------------------------


def test_a_log_without_its_beginning_is_replayed_from_the_snapshot() -> None:
    history = mixed(rounds=2)
    taken = history.snapshot()
    name = history.units("acme/orders")[0]
    history.transfer(name, history.elsewhere(name))
    history.fail(SECOND, FIRST)
    history.beat(FIRST)
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == []
    checks = {check.name: check for check in findings.checks}
    assert "the log before it is gone" in checks[CheckName.OWNERSHIP].note
    assert 0 < checks[CheckName.DIGESTS].examined < len(history.beats)
    assert int(findings.final_digest, 16) == history.state.digest


def test_without_snapshot_and_heartbeats_their_checks_are_not_applicable() -> None:
    history = _ready()
    results = {check.name: check.result for check in audited(history).checks}
    assert results.pop(CheckName.SNAPSHOT) is CheckResult.NOT_APPLICABLE
    assert results.pop(CheckName.DIGESTS) is CheckResult.NOT_APPLICABLE
    assert set(results.values()) == {CheckResult.OK}


def test_an_owner_that_comes_back_in_a_new_session_keeps_its_units() -> None:
    history = _ready()
    history.assign(history.units()[1], SECOND)
    history.wait(LIVENESS_MS)
    history.join(SECOND)
    history.transfer(history.units()[1], THIRD)
    assert violated(audited(history)) == []


def test_a_broker_that_leaves_on_its_own_needs_no_lease_to_lapse() -> None:
    history = _ready()
    name = history.units()[1]
    history.assign(name, SECOND)
    history.transfer(name, THIRD)
    record = SessionChange(
        proposal_id=history.new_id(),
        broker=SECOND,
        op=SessionOp.CLOSE,
        version=history.sessions[SECOND] + 1,
        actor=SECOND,
        session=history.sessions[SECOND],
    )
    history.accepted(record)
    history.transfer(name, FIRST)
    assert violated(audited(history)) == []
