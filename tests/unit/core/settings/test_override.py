"""Overrides of settings: what a record may say of them, and what becomes of it."""

from __future__ import annotations

import pytest

from anabranch.core.entities import override
from anabranch.core.log.records import PolicyOp
from anabranch.core.log.verdicts import Verdict
from support.there import there
from support.world import A, B, World

NAME = "lookupTimeoutMillis"


@pytest.fixture
def world() -> World:
    return World(A)


def test_an_override_is_what_its_last_record_says_and_tells_what_was_before() -> None:
    world = World(A, B)
    place = len(world.log)
    record = world.setting(NAME, PolicyOp.CREATE, value="500")
    made = override.SettingOverride(
        version=place + 1,
        value="500",
        before=(),
        broker=A,
        since_ms=1_000 * place,
        proposal_id=record.proposal_id,
    )
    assert world.must(record).changes == ((f"setting:{NAME}", made),)
    assert world.tell(record) is Verdict.REPEATED
    world.must(world.setting(NAME, PolicyOp.UPDATE, B, value="600"))
    after = there(world.replica.override(NAME))
    assert (after.version, after.value, after.before, after.broker) == (
        place + 2,
        "600",
        ("500",),
        B,
    )
    assert list(world.replica.overrides()) == [(NAME, after)]
    assert world.must(world.setting(NAME, PolicyOp.DELETE)).changes == ((f"setting:{NAME}", None),)
    assert list(world.replica.overrides()) == []


def test_what_nothing_overrides_cannot_be_changed_or_taken_away(world: World) -> None:
    for op in (PolicyOp.UPDATE, PolicyOp.DELETE):
        assert world.tell(world.setting(NAME, op)) is Verdict.UNKNOWN_OVERRIDE


def test_what_only_another_release_may_know_is_kept_as_it_is(world: World) -> None:
    name, value = "aSettingOfTheNextRelease", "a/b?c=%2F#d & ünïcode 🙂" + "x" * 4_000
    world.must(world.setting(name, PolicyOp.CREATE, value=value))
    assert there(world.replica.override(name)).value == value


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "a\nb", "x" * 129, "snake_case", "gründe"])
def test_what_can_be_no_settings_name_is_rejected(world: World, name: str) -> None:
    assert world.tell(world.setting(name, PolicyOp.CREATE, value="1")) is Verdict.INVALID_VALUE


@pytest.mark.parametrize(
    "value", ["two\nlines", "\x9f", "\u2028", "\ud800", "x" * (override.VALUE_CHARACTERS_MAX + 1)]
)
def test_a_value_that_cannot_be_shown_or_is_too_long_is_rejected(world: World, value: str) -> None:
    assert world.tell(world.setting(NAME, PolicyOp.CREATE, value=value)) is Verdict.INVALID_VALUE
    assert override.value_fault(value)


def test_a_deletion_says_no_value(world: World) -> None:
    world.must(world.setting(NAME, PolicyOp.CREATE, value="1"))
    assert world.tell(world.setting(NAME, PolicyOp.DELETE, value="1")) is Verdict.INVALID_VALUE


def test_overrides_are_bounded_and_those_that_are_there_still_change(world: World) -> None:
    world.must(world.setting("s0", PolicyOp.CREATE, value="1"))
    made = world.replica.override("s0")
    world.replica.apply(
        [(f"setting:s{number}", made) for number in range(1, override.OVERRIDES_MAX)]
    )
    late = world.setting("late", PolicyOp.CREATE, value="1")
    assert world.tell(late) is Verdict.TOO_MANY_OVERRIDES
    world.must(world.setting("s7", PolicyOp.UPDATE, value="2"))
    world.must(world.setting("s8", PolicyOp.DELETE))
    world.must(world.setting("late", PolicyOp.CREATE, value="1"))
