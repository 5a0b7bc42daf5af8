"""The audit of who may do what: sound where the log held to it, and a planted breach is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.broker.settings.overrides import setting_fault
from anabranch.core.entities.override import SettingOverride, override_key
from anabranch.core.entities.topic import TopicMove
from anabranch.core.fold.evolve import NOT_PERMITTED, evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import PolicyOp, Record, SettingChange, TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.checks.cluster.settings import Overrides
from anabranch.spark_replay.audit.replay import Rule as SettingRule
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import AuditFindings
from support.history import BROKERS, DEFAULT, History, Rule, ready
from support.local_audit import OF_ROLES, audited, not_applicable, only, violated, witness
from support.role_history import (
    ORDERS,
    administered,
    asked,
    authorizing,
    grant,
    lets_all_through,
    lets_proxies_through,
    must,
    of_roles,
    policy,
)
from support.setting_history import NAME, override_change
from support.topic_history import controlled, create, delete

FIRST = BROKERS[0]
CHECK = CheckName.PERMISSIONS


def examined(findings: AuditFindings) -> int:
    return next(check.examined for check in findings.checks if check.name is CHECK)


def breaches(history: History, rule: Rule, **given: Any) -> list[tuple[int, str]]:
    """Where and how somebody's rights were broken, which is all that is wrong."""
    findings = audited(history, rule=rule, **given)
    assert violated(findings) == [CHECK]
    (found,) = (check for check in findings.checks if check.name is CHECK)
    return [(each.offset, each.text) for each in found.witnesses]


@pytest.mark.parametrize("parts", [1, 3])
def test_what_roles_did_with_the_right_to_it_is_sound(parts: int) -> None:
    history = of_roles()
    assert asked(history, "bob", policy(history)) is Verdict.NOT_PERMITTED
    must(asked(history, "boss", grant(history, ORDERS, "ada")))
    assert asked(history, "ada", policy(history)) is Verdict.NOT_PERMITTED
    must(asked(history, "boss", grant(history, ORDERS, "spiffe://ada", "scale")))
    must(asked(history, "spiffe://ada", policy(history)))
    other = administered(history, "public", "ada")
    assert asked(history, "ada", other) is Verdict.NOT_PERMITTED
    findings = audited(history, parts=parts)
    assert violated(findings) == []
    assert examined(findings) == 10  # refusals included
    assert not not_applicable(findings) & OF_ROLES


def test_a_replay_from_a_snapshot_knows_who_may_do_what() -> None:
    history = of_roles()
    taken = history.snapshot()
    must(asked(history, "ada", policy(history)))
    must(asked(history, "root", administered(history, "public", "boss", "eve")))
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == []
    assert examined(findings) == 2


def test_where_no_node_asks_there_is_nothing_to_look_at() -> None:
    history = History()
    history.found()
    must(asked(history, "eve", grant(history, DEFAULT, "eve", "scale")))
    assert not_applicable(audited(history)) >= OF_ROLES


@pytest.mark.parametrize("role", ["eve", "bob", "boss of nothing"])
def test_a_change_by_who_never_had_the_right_is_found(role: str) -> None:
    history = of_roles(lets_all_through)
    must(asked(history, role, policy(history)))
    (found,) = breaches(history, lets_all_through)
    assert found[1] == (
        f"topic:{ORDERS}: {FIRST} changed it for {role}, who had no right to: it needs scale on "
        f"{ORDERS}"
    )


def through_a_gate(rule: Rule = evolve) -> History:
    """And a proxy, by which ada asks, that may what she may."""
    history = of_roles(rule)
    must(asked(history, "boss", grant(history, ORDERS, "gate", "scale")))
    must(asked(history, "ada", policy(history), "gate"))
    return history


@pytest.mark.parametrize("parts", [1, 3])
def test_what_both_a_role_and_its_proxy_had_the_right_to_is_sound(parts: int) -> None:
    history = through_a_gate()
    must(asked(history, "ada", policy(history)))
    assert asked(history, "ada", policy(history), "other") is Verdict.NOT_PERMITTED
    must(asked(history, "boss", grant(history, ORDERS, "gate")))
    assert asked(history, "ada", policy(history), "gate") is Verdict.NOT_PERMITTED
    assert asked(history, "eve", policy(history), "root") is Verdict.NOT_PERMITTED
    assert asked(history, "root", policy(history), "root") is Verdict.NOT_PERMITTED
    must(asked(history, "boss", policy(history), "root"))
    findings = audited(history, parts=parts)
    assert violated(findings) == []
    assert examined(findings) == 13
    assert not not_applicable(findings) & OF_ROLES


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_change_by_a_proxy_that_had_no_right_is_found(snapshot: bool, parts: int) -> None:
    history = through_a_gate(lets_proxies_through)
    taken = history.snapshot()
    must(asked(history, "ada", policy(history), "gate"))
    must(asked(history, "boss", grant(history, ORDERS, "gate", "consume")))
    must(asked(history, "ada", policy(history), "gate"))
    must(asked(history, "ada", policy(history)))
    must(asked(history, "boss", policy(history), "nobody"))
    late = history.next_offset - 3
    since: Any = {"snapshot": taken, "without_before": taken.horizon.next_offset}
    told = breaches(history, lets_proxies_through, parts=parts, **(since if snapshot else {}))
    start, end = f"topic:{ORDERS}: {FIRST} changed it for", f"it needs scale on {ORDERS}"
    assert told == [
        (late, f"{start} ada through gate, a proxy that had no right to: {end}"),
        (late + 2, f"{start} boss through nobody, a proxy that had no right to: {end}"),
    ]


def test_a_principal_without_the_right_is_named_before_its_proxy() -> None:
    history = through_a_gate(lets_all_through)
    must(asked(history, "eve", policy(history), "nobody"))
    must(asked(history, "root", policy(history), "root"))
    assert [text.partition(", who")[0] for _, text in breaches(history, lets_all_through)] == [
        f"topic:{ORDERS}: {FIRST} changed it for {role}" for role in ("eve", "root")
    ]


def refuses_scaling(state: StateReader, record: Record, offset: int, ms: int) -> Outcome:
    """A fold that takes everybody's right to scale away."""
    outcome = evolve(state, record, offset, ms)
    is_scaling = isinstance(record, TopicChange) and record.move is TopicMove.POLICY
    return NOT_PERMITTED if is_scaling and outcome.verdict is Verdict.ACCEPTED else outcome


@pytest.mark.parametrize("parts", [1, 3])
def test_who_was_refused_what_they_and_their_proxy_had_the_right_to_is_found(parts: int) -> None:
    history = through_a_gate()
    history.rule = refuses_scaling
    for role in ("ada", "boss", "root"):
        assert asked(history, role, policy(history)) is Verdict.NOT_PERMITTED
    assert asked(history, "ada", policy(history), "gate") is Verdict.NOT_PERMITTED
    assert asked(history, "ada", policy(history), "other") is Verdict.NOT_PERMITTED  # has none
    assert asked(history, "bob", policy(history)) is Verdict.NOT_PERMITTED  # nor has he
    late = history.next_offset - 6

    def rule(state: StateReader, record: Record, offset: int, ms: int) -> Outcome:
        return (refuses_scaling if offset >= late else evolve)(state, record, offset, ms)

    found = breaches(history, rule, parts=parts)
    assert [offset for offset, _ in found] == [late, late + 1, late + 2, late + 3]
    for at, whom in ((0, "ada"), (3, "ada through gate")):
        assert found[at][1] == (
            f"topic:{ORDERS}: {FIRST} was refused it for {whom}, who had the right to, or need "
            f"not: it needs scale on {ORDERS}"
        )


def test_who_was_refused_though_nobody_asks_there_is_found() -> None:
    history = History()
    history.found()
    controlled(history, ORDERS)
    create(history, ORDERS)
    history.rule = refuses_scaling
    assert asked(history, "", policy(history)) is Verdict.NOT_PERMITTED
    assert asked(history, "ada", policy(history)) is Verdict.NOT_PERMITTED
    assert len(breaches(history, refuses_scaling)) == 2


def test_who_is_a_superuser_of_another_node_s_session_is_found() -> None:
    history = of_roles(lets_all_through)
    authorizing(history, FIRST, "other")
    must(asked(history, "root", administered(history, "public", "root")))
    only(history, CHECK, "it needs superuser on public", rule=lets_all_through)


@pytest.mark.parametrize("what", ["topic", "namespace"])
def test_what_is_still_granted_on_what_is_gone_is_found(what: str) -> None:
    def keeps_permissions(state: StateReader, record: Record, offset: int, ms: int) -> Outcome:
        outcome = evolve(state, record, offset, ms)
        gone = record.key.startswith(f"{what}:")
        kept = tuple(
            (key, after)
            for key, after in outcome.changes
            if not (gone and key.startswith("permission:"))
        )
        return Outcome(outcome.verdict, kept)

    history = of_roles(keeps_permissions)
    if what == "topic":
        delete(history, ORDERS)
    else:
        history.namespace("public/shop")
        must(history.append(grant(history, "public/shop", "ada", "view")))
        history.namespace("public/shop", op=PolicyOp.DELETE)
    findings = audited(history, rule=keeps_permissions)
    assert CHECK in violated(findings)
    assert f"the {what} is gone, but ada may still do something on it" in witness(findings, CHECK)


# --- overrides of settings: what does not replace what was in force, or cannot be used, is found


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


def broken(spoil: Spoil) -> SettingRule:
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
        (lambda _, o: after(o, before=()), "it replaced nothing, where '1000' was in force"),
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


def test_an_end_of_what_overrode_nothing_is_found() -> None:
    check = Overrides()
    record = override_change(ready(), PolicyOp.DELETE)
    check.changed(9, record, ((override_key(NAME), None),))
    (found,) = check.tally.witnesses
    assert found.text == f"{NAME}: DELETE was accepted where nothing overrode it"


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
