"""Single ownership and ring coverage, move by move: who may gain, who may lose, what is told."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log import records
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.checks.bundles.coverage import Coverage
from anabranch.spark_replay.audit.checks.bundles.ownership import Ownership
from anabranch.spark_replay.audit.checks.log.versions import Versions
from support.history import BROKERS
from support.local_audit import told

A, B, C = BROKERS
HOME = "public/default"
WHOLE = f"{HOME}/0x00000000_0xffffffff"
OTHER = "acme/shop/0x00000000_0xffffffff"
LEFT, RIGHT = f"{HOME}/0x00000000_0x80000000", f"{HOME}/0x80000000_0xffffffff"


def unit(state: UnitState, broker: str = "", source: str = "", version: int = 5) -> Unit:
    return Unit(state, broker, source, version, Move.OWN, 0, 8, "p")


def move(what: Move, actor: str = B, broker: str = "", version: int = 6) -> records.UnitMove:
    return records.UnitMove("p", WHOLE, what, version, actor, 1, broker)


def held(by: str) -> Ownership:
    check = Ownership()
    if by:
        check.start(WHOLE, unit(UnitState.OWNED, by))
    return check


STILL_HELD, UNHELD = "given to {} while {} still held it", "{} accepted while nobody held it"


# --- ownership -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "record", "after", "text"),
    [
        ("", move(Move.OWN), unit(UnitState.OWNED, B), ""),
        (A, move(Move.OWN), unit(UnitState.OWNED, B), STILL_HELD.format(B, A)),
        ("", move(Move.ASSIGN, broker=C), unit(UnitState.ASSIGNING, C), ""),
        (A, move(Move.ASSIGN, broker=C), unit(UnitState.OWNED, A), STILL_HELD.format(C, A)),
        (A, move(Move.TOMBSTONE), unit(UnitState.OWNED, A), STILL_HELD.format(B, A)),
        ("", move(Move.TOMBSTONE), None, ""),
        (A, move(Move.RELEASE, A), unit(UnitState.RELEASING, B, A), ""),
        ("", move(Move.RELEASE), unit(UnitState.RELEASING), UNHELD.format("RELEASE")),
        (A, move(Move.SPLIT, A), unit(UnitState.SPLITTING, A), ""),
        ("", move(Move.SPLIT), unit(UnitState.SPLITTING), UNHELD.format("SPLIT")),
        (A, move(Move.HAND_OVER, A), unit(UnitState.ASSIGNING, B), ""),
        (A, move(Move.HAND_OVER), unit(UnitState.ASSIGNING, B), f"{B} gave it up, but {A} held it"),
        ("", move(Move.FREE), unit(UnitState.FREE), f"{B} gave it up, but nobody held it"),
        (A, move(Move.OVERRIDE), unit(UnitState.ASSIGNING, C, A), ""),
    ],
)
def test_a_move_is_judged_by_who_holds_the_unit(
    holder: str, record: records.UnitMove, after: Unit | None, text: str
) -> None:
    check = held(holder)
    check.moved(9, record, ((WHOLE, after),))
    assert told(check.tally) == ([(9, f"{WHOLE}: {text}")] if text else [])
    assert check.tally.examined == 1


@pytest.mark.parametrize("what", [Move.RECLAIM, Move.DISCARD])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_unit_is_taken_only_from_who_has_no_session(what: Move, is_open: bool) -> None:
    check = held(A)
    check.session(records.SessionChange("p", A, records.SessionOp.OPEN, 1, A, 0))
    if not is_open:
        check.session(records.SessionChange("p", A, records.SessionOp.EXPIRE, 2, B, 1))
    check.moved(9, move(what), ((WHOLE, unit(UnitState.FREE)),))
    text = f"{WHOLE}: taken from {A}, whose session is open ({what.name})"
    assert told(check.tally) == ([(9, text)] if is_open else [])
    assert check.holder(WHOLE) == ""


def test_the_folds_answer_is_compared_and_gone_on_from() -> None:
    check = held(A)
    check.moved(9, move(Move.RELEASE, A), ((WHOLE, unit(UnitState.RELEASING, B, C)),))
    said = f"{WHOLE}: by its accepted moves {A} holds it, by the fold {C}"
    assert told(check.tally) == [(9, said)]
    check.moved(10, move(Move.HAND_OVER, C), ((WHOLE, unit(UnitState.ASSIGNING, B)),))
    assert check.tally.violated == 1
    lost = held(A)
    lost.moved(9, move(Move.RELEASE, A), ((WHOLE, unit(UnitState.FREE)),))
    said = f"{WHOLE}: by its accepted moves {A} holds it, by the fold nobody"
    assert told(lost.tally) == [(9, said)]


def test_a_splits_children_are_its_owners_and_were_nobodys() -> None:
    check = held(A)
    children = ((LEFT, unit(UnitState.OWNED, A)), (RIGHT, unit(UnitState.OWNED, A)))
    check.moved(9, move(Move.SPLIT_COMMIT, A), ((WHOLE, unit(UnitState.DELETED)), *children))
    assert told(check.tally) == []
    assert (check.holder(WHOLE), check.holder(LEFT), check.holder(RIGHT)) == ("", A, A)
    strange = held(A)
    others = ((OTHER, unit(UnitState.FREE)), (LEFT, None))
    strange.moved(9, move(Move.SPLIT_COMMIT, A), ((WHOLE, unit(UnitState.DELETED)), *others))
    assert (told(strange.tally), strange.holder(LEFT)) == ([], "")
    taken = held(A)
    taken.start(LEFT, unit(UnitState.OWNED, C))
    taken.moved(9, move(Move.SPLIT_COMMIT, A), ((WHOLE, unit(UnitState.DELETED)), *children))
    assert told(taken.tally) == [(9, f"{LEFT}: given to {A} while {C} still held it")]


def test_a_namespace_goes_only_when_nobody_holds_its_bundles() -> None:
    check = held(A)
    check.reshaped(9, ((WHOLE, None),))
    assert told(check.tally) == [(9, f"{WHOLE}: deleted or made anew while {A} held it")]
    assert check.holder(WHOLE) == ""
    made = held("")
    made.reshaped(9, ((WHOLE, unit(UnitState.OWNED, B)),))
    said = f"{WHOLE}: by its accepted moves nobody holds it, by the fold {B}"
    assert told(made.tally) == [(9, said)]


@pytest.mark.parametrize(("holder", "who"), [(A, A), ("", "nobody")])
def test_what_only_an_owner_may_write_is_the_holders(holder: str, who: str) -> None:
    check = held(holder)
    check.used(9, "topic:t", WHOLE, B)
    assert told(check.tally) == [(9, f"topic:t: changed by {B}, but {who} held its bundle {WHOLE}")]
    fine = held(A)
    fine.used(9, "topic:t", WHOLE, A)
    fine.used(10, "topic:t", WHOLE, A)
    assert (told(fine.tally), fine.tally.examined) == ([], 2)


# --- coverage ------------------------------------------------------------------------------------


def covered(*bundles: str) -> Coverage:
    check = Coverage()
    for name in bundles:
        check.start(name, unit(UnitState.FREE))
    check.started(7)
    return check


def seen(
    bundles: tuple[str, ...], record: records.Record, *changes: tuple[str, Any]
) -> list[tuple[int, str]]:
    """What is told of these changes where these bundles cover rings."""
    check = covered(*bundles)
    check.accepted(9, record, changes)
    return told(check.tally)


def split(*after: str) -> tuple[records.UnitMove, tuple[tuple[str, Unit | None], ...]]:
    changes: tuple[tuple[str, Unit | None], ...] = ((WHOLE, unit(UnitState.DELETED)),)
    return move(Move.SPLIT_COMMIT), changes + tuple((n, unit(UnitState.OWNED, A)) for n in after)


@pytest.mark.parametrize(
    ("bundles", "text"),
    [
        ((LEFT, RIGHT), ""),
        ((RIGHT,), "no bundle covers 0x00000000_0x80000000"),
        ((WHOLE, RIGHT), "more than one bundle covers 0x80000000_0xffffffff"),
    ],
)
def test_the_bundles_of_a_snapshot_tile_their_ring(bundles: tuple[str, ...], text: str) -> None:
    assert told(covered(*bundles).tally) == ([(7, f"{HOME}: {text}")] if text else [])


def test_deleted_bundles_of_a_snapshot_cover_nothing() -> None:
    check = covered(LEFT, RIGHT)
    check.start(WHOLE, unit(UnitState.DELETED))
    check.started(8)
    assert told(check.tally) == []


def test_a_hole_is_told_once_until_it_is_mended() -> None:
    check = covered(WHOLE)
    check.accepted(9, *split(LEFT))
    check.accepted(10, move(Move.OWN), ((LEFT, unit(UnitState.OWNED, A)),))
    check.accepted(11, move(Move.OWN), ((f"{HOME}/0x80000000_0x90000000", unit(UnitState.FREE)),))
    assert check.tally.violated == 1
    check.accepted(12, move(Move.OWN), ((f"{HOME}/0x90000000_0xffffffff", unit(UnitState.FREE)),))
    check.accepted(13, move(Move.TOMBSTONE), ((LEFT, None),))
    assert ([offset for offset, _ in told(check.tally)], check.tally.examined) == ([9, 13], 5)


def test_leadership_and_other_keys_are_no_bundles() -> None:
    check = covered(WHOLE)
    changes = ((LEADERSHIP, unit(UnitState.OWNED, A)), ("tenant:a", Tenant(1, (), (), 0, "p")))
    check.accepted(9, move(Move.ELECT), changes)
    assert (told(check.tally), check.tally.examined) == ([], 1)


def test_a_namespace_that_is_deleted_leaves_no_ring_to_tile_unless_a_bundle_stays() -> None:
    record = records.NamespaceChange("p", HOME, records.PolicyOp.DELETE, 2, A, 1)
    gone = ((record.key, None), (LEFT, None), (RIGHT, None))
    assert seen((LEFT, RIGHT), record, *gone) == []
    hole = f"{HOME}: no bundle covers 0x00000000_0x80000000"
    assert seen((LEFT, RIGHT), record, *gone[:2]) == [(9, hole)]


def test_only_the_namespace_that_is_deleted_may_lose_all_its_bundles() -> None:
    gone = ((LEFT, None), (RIGHT, None))
    hole = "no bundle covers 0x00000000_0xffffffff"
    for record in (
        records.NamespaceChange("p", HOME, records.PolicyOp.UPDATE, 2, A, 1),
        records.NamespaceChange("p", "acme/shop", records.PolicyOp.DELETE, 2, A, 1),
        move(Move.TOMBSTONE),
    ):
        assert seen((LEFT, RIGHT), record, *gone) == [(9, f"{HOME}: {hole}")]
    record = records.NamespaceChange("p", HOME, records.PolicyOp.DELETE, 2, A, 1)
    assert seen((LEFT, RIGHT, OTHER), record, *gone, (OTHER, None)) == [(9, f"acme/shop: {hole}")]
    record, changes = split()
    assert seen((WHOLE,), record, *changes) == [(9, f"{HOME}: {hole}")], "a split without children"


def test_a_bundle_that_comes_again_is_looked_at_again() -> None:
    check = covered(LEFT, RIGHT)
    check.accepted(
        9,
        records.NamespaceChange("p", HOME, records.PolicyOp.DELETE, 2, A, 1),
        ((LEFT, None), (RIGHT, None)),
    )
    made = records.NamespaceChange("p", HOME, records.PolicyOp.CREATE, 1, A, 1, 2)
    check.accepted(10, made, ((LEFT, unit(UnitState.FREE)),))
    assert told(check.tally) == [(10, f"{HOME}: no bundle covers 0x80000000_0xffffffff")]


def test_a_change_is_seen_beside_and_behind_others_of_the_same_record() -> None:
    odd, twice = f"{HOME}/0x80000000_0x10000000", "more than one bundle covers"
    free = unit(UnitState.FREE)
    found = seen((WHOLE,), move(Move.OWN), (WHOLE, unit(UnitState.OWNED, A)), (LEFT, free))
    assert found == [(9, f"{HOME}: {twice} 0x00000000_0x80000000")]
    assert seen((WHOLE,), move(Move.OWN), (odd, free), ("odd", free), (LEFT, free)) == [
        (9, f"{odd}: not the name of a bundle, yet accepted"),
        (9, "odd: not the name of a bundle, yet accepted"),
        (9, f"{HOME}: {twice} 0x00000000_0x80000000"),
    ]
    record, changes = split(LEFT, RIGHT)
    found = seen((WHOLE, OTHER), record, *changes, (OTHER, None))
    assert found == [(9, "acme/shop: no bundle covers 0x00000000_0xffffffff")]


def test_a_namespace_that_is_made_tiles_its_ring() -> None:
    record = records.NamespaceChange("p", HOME, records.PolicyOp.CREATE, 1, A, 1, 2)
    info = (record.key, NamespaceInfo(1, 2, 0, "p"))
    free = unit(UnitState.FREE)
    assert seen((), record, info, (LEFT, free), (RIGHT, free)) == []
    hole = f"{HOME}: no bundle covers 0x80000000_0xffffffff"
    assert seen((), record, info, (LEFT, free)) == [(9, hole)]


# --- versions ------------------------------------------------------------------------------------


def test_what_is_born_at_its_place_in_the_log_counts_from_there() -> None:
    record = records.TenantChange("p", "a", records.PolicyOp.CREATE, 1, A, 1)
    for version, fine in ((10, True), (9, False), (11, False), (1, False)):
        check = Versions()
        check.accepted(9, record, ((record.key, Tenant(version, (), (), 0, "p")),))
        text = f"tenant:a: version {version} was accepted where version 1 comes next"
        assert told(check.tally) == ([] if fine else [(9, text)])
        assert check.tally.examined == 1


def test_what_is_gone_begins_anew() -> None:
    check = Versions()
    record = records.TenantChange("p", "a", records.PolicyOp.CREATE, 1, A, 1)
    check.accepted(9, record, ((record.key, Tenant(10, (), (), 0, "p")),))
    gone = (("never was", None), (record.key, None))
    check.accepted(10, records.TenantChange("p", "a", records.PolicyOp.DELETE, 11, A, 1), gone)
    check.accepted(11, record, ((record.key, Tenant(12, (), (), 0, "p")),))
    assert (told(check.tally), check.tally.examined) == ([], 3)


def test_a_rejected_record_changes_nothing() -> None:
    check = Versions()
    check.rejected(9, move(Move.OWN), Outcome(Verdict.STALE_VERSION, ()))
    assert told(check.tally) == []
    check.rejected(10, move(Move.OWN), Outcome(Verdict.STALE_VERSION, ((WHOLE, None),)))
    assert told(check.tally) == [(10, f"{WHOLE}: rejected as STALE_VERSION, yet it changed 1 keys")]


def test_leadership_counts_from_one_although_it_is_a_unit() -> None:
    check = Versions()
    record = records.UnitMove("p", LEADERSHIP, Move.ELECT, 1, A, 1)
    check.accepted(4, record, ((LEADERSHIP, unit(UnitState.OWNED, A, version=1)),))
    assert told(check.tally) == []
    late = Versions()
    late.accepted(4, record, ((LEADERSHIP, unit(UnitState.OWNED, A, version=5)),))
    assert late.tally.violated == 1
