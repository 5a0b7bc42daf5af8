"""What the balancer did: where policies forbid it, too soon, or without a reason, it is found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import WEIGHED_MAX, Grounds, Weighed, rule_of
from anabranch.core.log.records import Cause
from anabranch.spark_replay.audit.tally import CheckName
from support.balance_history import FIRST, GRACE_MS, SECOND, SOUND, THIRD, isolates, sheds
from support.history import History, ready
from support.local_audit import audited, not_applicable, only, violated


def owned() -> tuple[History, str]:
    """A cluster in which the first broker owns a bundle."""
    history = ready()
    name = history.units()[1]
    history.assign(name, FIRST)
    return history, name


def test_moves_with_reasons_to_allowed_brokers_and_far_apart_are_sound() -> None:
    history, name = owned()
    isolates(history, "public/.*", "b[12]", secondary="b3:.*")
    sheds(history, name, SECOND)
    history.wait(GRACE_MS)
    sheds(history, name, THIRD, Cause.UNDERLOADED)
    history.transfer(name, FIRST)  # by hand, and so at any time
    isolates(history, "acme/.*", "nobody")
    history.wait(GRACE_MS)
    sheds(history, name, SECOND)
    findings = audited(history)
    assert violated(findings) == []
    examined = {check.name: check.examined for check in findings.checks}
    assert (examined[CheckName.PLACEMENT], examined[CheckName.BALANCE]) == (3, 3)
    assert not not_applicable(findings) & {CheckName.PLACEMENT, CheckName.BALANCE}


@pytest.mark.parametrize(
    ("namespaces", "primary", "text"),
    [
        ("public/.*", "b1", "RELEASE to b2:8080, which is no broker of isolation"),
        ("acme/.*", "b2", "isolation policy gold has for other namespaces"),
    ],
)
def test_a_choice_of_a_broker_that_is_not_the_namespaces_to_have_is_found(
    namespaces: str, primary: str, text: str
) -> None:
    history, name = owned()
    isolates(history, namespaces, primary)
    history.wait(60_000)
    sheds(history, name, SECOND)
    only(history, CheckName.PLACEMENT, text)


def test_a_policy_may_name_a_broker_by_its_address() -> None:
    history, six = History(), "[::1]:8080"
    history.found(brokers=(FIRST, six))
    history.assign(history.units()[1], FIRST)
    isolates(history, "public/.*", r"\[::1\]")
    history.wait(60_000)
    sheds(history, history.units()[1], six)
    assert violated(audited(history)) == []


def test_an_assignment_is_held_against_the_policies_too() -> None:
    history = ready()
    isolates(history, "public/.*", "b1")
    history.wait(60_000)
    name = history.units()[1]
    record = history.move(name, Move.ASSIGN, THIRD, broker=THIRD)
    history.accepted(replace(record, cause=Cause.LOOKUP, choice=(SOUND,)))
    history.own(name)
    only(history, CheckName.PLACEMENT, "ASSIGN to b3:8080")


def test_a_choice_that_had_not_read_the_newest_policy_is_no_fault() -> None:
    history, name = owned()
    isolates(history, "public/.*", "b[12]")
    history.wait(60_000)
    isolates(history, "public/.*", "b1")
    sheds(history, name, SECOND)
    assert violated(audited(history)) == []


def test_a_choice_of_a_broker_that_a_filter_had_removed_is_found() -> None:
    history, name = owned()
    sheds(history, name, SECOND, grounds=replace(SOUND, weighed=(Weighed(SECOND, 0.1, "version"),)))
    only(history, CheckName.PLACEMENT, "though version had removed it")


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (
            (replace(SOUND, weighed=(*SOUND.weighed, *[Weighed(THIRD, 0.5)] * WEIGHED_MAX)),),
            "RELEASE to b2:8080, with 21 brokers weighed, where a record has room for 20",
        ),
        ((SOUND, SOUND), "RELEASE to b2:8080, which rests on 2 choices"),
    ],
)
def test_grounds_beyond_what_a_record_has_room_for_are_found_and_change_no_state(
    choice: tuple[Grounds, ...], text: str
) -> None:
    def with_grounds(of: tuple[Grounds, ...]) -> History:
        history, name = owned()
        record = history.move(name, Move.RELEASE, FIRST, broker=SECOND)
        history.accepted(replace(record, cause=Cause.OVERLOADED, choice=of))
        history.accepted(history.move(name, Move.HAND_OVER, FIRST))
        history.own(name)
        return history

    history, sound = with_grounds(choice), with_grounds((SOUND,))
    assert history.state.digest == sound.state.digest
    only(history, CheckName.PLACEMENT, text)
    full = replace(SOUND, weighed=(*SOUND.weighed, *[Weighed(THIRD, 0.5)] * (WEIGHED_MAX - 1)))
    assert violated(audited(with_grounds((full,)))) == []


def test_a_move_within_the_grace_period_of_the_last_one_is_found() -> None:
    history, name = owned()
    sheds(history, name, SECOND)
    history.wait(GRACE_MS // 2)
    sheds(history, name, THIRD)
    only(history, CheckName.BALANCE, "before the grace period of the last one was over")


def test_a_grace_period_that_was_set_shorter_or_longer_meanwhile_is_no_fault() -> None:
    short = replace(SOUND, grace_ms=1_000)
    for first, second in ((SOUND, short), (short, SOUND)):
        history, name = owned()
        sheds(history, name, SECOND, grounds=first)
        history.wait(GRACE_MS // 2)
        sheds(history, name, THIRD, grounds=second)
        assert violated(audited(history)) == []


@pytest.mark.parametrize(
    ("cause", "grounds", "text"),
    [
        (Cause.OVERLOADED, None, "does not say what it rested on"),
        (Cause.OVERLOADED, replace(SOUND, rule=""), "does not say what it rested on"),
        (Cause.BALANCE, SOUND, "gives BALANCE as its reason"),
        (Cause.TOPICS, SOUND, "gives TOPICS as its reason"),
        (Cause.UNDERLOADED, replace(SOUND, predicted=0.5), "was to make the deviation 0.500"),
        (Cause.UNDERLOADED, replace(SOUND, deviation=0.0), "0.200, where it was 0.000"),
    ],
)
def test_a_move_without_a_reason_is_found(cause: Cause, grounds: Grounds | None, text: str) -> None:
    history, name = owned()
    sheds(history, name, SECOND, cause, grounds)
    only(history, CheckName.BALANCE, text)


def test_a_strategy_of_ones_own_has_another_aim_and_the_same_grace_period() -> None:
    history, name = owned()
    own = replace(SOUND, rule=rule_of("Overloaded", "even-keel"), predicted=0.5)
    sheds(history, name, SECOND, grounds=own)  # it has another aim than even loads
    history.wait(GRACE_MS)
    sheds(history, name, THIRD)
    assert violated(audited(history)) == []
    sheds(history, name, FIRST, grounds=own)
    only(history, CheckName.BALANCE, "RELEASE, by strategy even-keel came")


def test_a_split_by_the_balancer_has_a_reason_of_its_own() -> None:
    def splits(cause: Cause) -> History:
        history, name = owned()
        children = ("0x40000000_0x60000000", "0x60000000_0x80000000")
        record = history.move(name, Move.SPLIT, FIRST, children=children)
        history.accepted(replace(record, cause=cause))
        history.accepted(history.move(name, Move.SPLIT_COMMIT, FIRST))
        return history

    assert violated(audited(splits(Cause.MSG_RATE))) == []
    only(splits(Cause.OVERLOADED), CheckName.BALANCE, "SPLIT by the balancer gives OVERLOADED")


def test_policies_of_a_snapshot_count_where_the_log_begins_later() -> None:
    history, name = owned()
    isolates(history, "public/.*", "b1")
    history.wait(60_000)
    taken = history.snapshot()
    sheds(history, name, SECOND)
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == [CheckName.PLACEMENT]
