"""A sound history passes every check; each planted violation is found by exactly its check."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.channel.codec import encode_entity
from anabranch.core.bundles.unit import Move
from anabranch.core.log.records import SessionChange, SessionOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.tenants.tenant import Tenant
from anabranch.spark_replay.audit.checks.log.offsets import Chunk
from anabranch.spark_replay.audit.tally import CheckName
from support.history import BROKERS, LIVENESS_MS, History, mixed, ready
from support.local_audit import (
    OF_BALANCE,
    OF_ROLES,
    OF_SETTINGS,
    OF_TOPICS,
    audited,
    not_applicable,
    only,
    violated,
)

FIRST, SECOND, THIRD = BROKERS


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_sound_history_passes_every_check_however_it_is_divided(parts: int) -> None:
    history = mixed(rounds=3)
    middle = history.snapshot()
    name = history.units("acme/orders")[0]
    history.transfer(name, history.elsewhere(name))
    findings = audited(history, parts=parts, snapshot=middle)
    assert violated(findings) == []
    assert not_applicable(findings) == OF_TOPICS | OF_BALANCE | OF_ROLES | OF_SETTINGS
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
    history = ready()
    history.transfer(history.units()[0], SECOND)
    history.fail(SECOND, FIRST)
    figures = audited(history).figures
    assert figures.hand_overs == {20: 1}
    (last_sign,) = figures.last_signs
    assert last_sign >= LIVENESS_MS
    assert sum(figures.fail_overs.values()) == 1


def test_a_unit_that_moves_too_often_flaps() -> None:
    history = ready()
    name = history.units()[0]
    for number in range(8):
        history.transfer(name, BROKERS[(number + 1) % 3])
    figures = audited(history).figures
    assert ([flap.unit for flap in figures.flaps], figures.flaps[0].moves) == ([name], 8)


# --- planted in the log ---------------------------------------------------------------------


def test_a_missing_offset_is_found() -> None:
    history = mixed()
    unreadable = next(e for e in history.entries if e.schema is None)
    history.entries.remove(unreadable)  # its loss changes no state
    only(history, CheckName.OFFSETS, "missing", chunks=[_chunk(history)])


def _chunk(history: History) -> Chunk:
    offsets = [entry.offset for entry in history.entries]
    return Chunk(min(offsets), max(offsets), len(offsets), len(set(offsets)))


def test_a_unit_left_in_flight_is_found() -> None:
    history = ready()
    name = history.units()[1]
    history.accepted(history.move(name, Move.ASSIGN, FIRST, broker=SECOND))
    history.wait(300_000)
    for broker in BROKERS:
        history.beat(broker)
    only(history, CheckName.STUCK, f"{name}: ASSIGNING for 300.0 s, waiting for {SECOND}")


def test_a_broker_that_is_silent_in_an_open_session_while_others_live_is_found() -> None:
    history = ready()
    history.assign(history.units()[1], SECOND)
    history.beat(SECOND)
    history.wait(120_000)
    history.beat(FIRST)
    only(history, CheckName.ORPHANS, "has been silent")


@pytest.mark.parametrize("value", [encode_entity(Tenant(1, (), (), 0, "p")), b"\x00", None])
def test_a_snapshot_that_differs_from_the_fold_is_found(value: bytes | None) -> None:
    history = mixed()
    taken = history.snapshot()
    name = history.units("globex/orders")[-1]
    del taken.values[name]
    if value is not None:
        taken.values[name] = value
    history.wait(10)
    only(history, CheckName.SNAPSHOT, "globex/orders", snapshot=taken)


def test_a_stranger_s_row_in_the_snapshot_is_no_state_and_accuses_nobody() -> None:
    history = mixed()
    taken = history.snapshot()
    taken.values["globex/stranger"] = b"\xc3\x01" + b"x" * 20
    history.wait(10)
    assert violated(audited(history, snapshot=taken)) == []


def test_a_snapshot_with_a_false_digest_is_found() -> None:
    history = mixed()
    taken = history.snapshot()
    false = msgspec.structs.replace(taken.horizon, digest="0" * 32)
    findings = audited(history, snapshot=msgspec.structs.replace(taken, horizon=false))
    assert violated(findings) == [CheckName.SNAPSHOT]


def test_a_node_with_a_false_digest_is_found() -> None:
    history = mixed()
    history.beat(SECOND, digest="f" * 32)
    only(history, CheckName.DIGESTS, SECOND)


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
    assert "the beginning of the log is gone" in checks[CheckName.OWNERSHIP].note
    assert 0 < checks[CheckName.DIGESTS].examined < len(history.beats)
    assert int(findings.final_digest, 16) == history.state.digest


def test_without_snapshot_and_heartbeats_their_checks_are_not_applicable() -> None:
    findings = audited(ready())
    assert violated(findings) == []
    nothing_moved = {CheckName.LEASES}
    without = {CheckName.SNAPSHOT, CheckName.DIGESTS}
    unasked = OF_TOPICS | OF_BALANCE | OF_ROLES | OF_SETTINGS
    assert not_applicable(findings) == unasked | nothing_moved | without


def test_an_owner_that_comes_back_in_a_new_session_keeps_its_units() -> None:
    history = ready()
    history.assign(history.units()[1], SECOND)
    history.wait(LIVENESS_MS)
    history.join(SECOND)
    history.transfer(history.units()[1], THIRD)
    assert violated(audited(history)) == []


def test_a_broker_that_leaves_on_its_own_needs_no_lease_to_lapse() -> None:
    history = ready()
    name = history.units()[1]
    history.assign(name, SECOND)
    history.transfer(name, THIRD)
    known, fields = history.state.session(SECOND), {"broker": SECOND, "op": SessionOp.CLOSE}
    history.accepted(history.next_of(SessionChange, known, actor=SECOND, **fields))
    history.transfer(name, FIRST)
    assert violated(audited(history)) == []
