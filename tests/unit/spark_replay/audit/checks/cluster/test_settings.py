"""Overrides of settings: what does not replace what was in force, or cannot be used, is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from anabranch.broker.settings.overrides import setting_fault
from anabranch.core.log.fold import evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import PolicyOp, Record, SettingChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.settings.override import SettingOverride, override_key
from anabranch.spark_replay.audit.replay import Rule
from anabranch.spark_replay.audit.tally import CheckName
from support.history import History, ready
from support.local_audit import audited, not_applicable, only, violated, witness
from support.setting_history import NAME, override_change


def overridden(*values: str, name: str = NAME) -> History:
    """A cluster that was given these values of a setting, one after the other; "": none."""
    history = ready()
    for value in values:
        known = history.state.override(name) is not None
        op = PolicyOp.DELETE if not value else PolicyOp.UPDATE if known else PolicyOp.CREATE
        history.accepted(override_change(history, op, value, name))
    return history


def test_overrides_that_replace_one_another_are_sound() -> None:
    findings = audited(overridden("1000", "2000", "", "3000"), setting_fault=setting_fault)
    assert violated(findings) == []
    assert CheckName.SETTINGS not in not_applicable(findings)
    (report,) = (each for each in findings.checks if each.name is CheckName.SETTINGS)
    assert report.examined == 4


def test_a_replay_from_a_snapshot_goes_on_with_what_is_in_force_there() -> None:
    history = overridden("1000")
    taken = history.snapshot()
    history.accepted(override_change(history, PolicyOp.UPDATE, "2000"))
    findings = audited(
        history, snapshot=taken, without_before=history.next_offset - 1, setting_fault=setting_fault
    )
    assert violated(findings) == []
    assert CheckName.SETTINGS not in not_applicable(findings)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("topicPrefix", "a.", "changes when a node starts"),
        (NAME, "soon", "was accepted: Invalid dynamic-config value"),
        ("scalableTopicMergeWindow", "300", "it is called scalableTopicMergeWindowSeconds"),
    ],
)
def test_what_no_node_of_this_release_can_use_is_found(name: str, value: str, why: str) -> None:
    only(overridden(value, name=name), CheckName.SETTINGS, why, setting_fault=setting_fault)


def test_values_are_not_judged_where_nobody_says_what_is_right() -> None:
    assert violated(audited(overridden("soon"))) == []


Spoil = Callable[[SettingChange, Outcome], Outcome]


def broken(spoil: Spoil) -> Rule:
    """The fold, with other outcomes of the last change of a setting."""

    def rule(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if isinstance(record, SettingChange) and record.value == "2000":
            return spoil(record, outcome)
        return outcome

    return rule


def after(outcome: Outcome, **fields: object) -> Outcome:
    ((key, entity),) = outcome.changes
    assert isinstance(entity, SettingOverride)
    return Outcome(Verdict.ACCEPTED, ((key, replace(entity, **fields)),))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda _, o: after(o, value="4000"), "to '2000' did not give it that value"),
        (lambda _, o: after(o, before=("7",)), "it replaced '7', where '1000' was in force"),
        (
            lambda r, _: Outcome(Verdict.ACCEPTED, ((override_key(r.name), None),)),
            "did not give it that value",
        ),
    ],
)
def test_a_fold_that_makes_something_else_of_a_change_is_found(spoil: Spoil, why: str) -> None:
    findings = audited(overridden("1000", "2000"), rule=broken(spoil))
    assert CheckName.SETTINGS in violated(findings)
    assert why in witness(findings, CheckName.SETTINGS)


def test_a_second_first_override_is_found() -> None:
    history = overridden("1000")
    record = replace(override_change(history, PolicyOp.UPDATE, "2000"), op=PolicyOp.CREATE)
    history.append(record)

    def rule(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, SettingChange) and record.value == "2000":
            record = replace(record, op=PolicyOp.UPDATE)
        return evolve(state, record, offset, timestamp_ms)

    findings = audited(history, rule=rule)
    assert CheckName.SETTINGS in violated(findings)
    assert "CREATE was accepted where it was overridden by '1000'" in witness(
        findings, CheckName.SETTINGS
    )
