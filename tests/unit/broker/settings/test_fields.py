"""Fields of settings: what each takes, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from anabranch.broker.settings.fields import (
    AtRunTime,
    Changes,
    InvalidSettingsError,
    SettingFields,
    field,
)


class Fruit(SettingFields):
    seed_count: AtRunTime[int] = field(3, ge=1, lt=9, description="Seeds.")
    sugar_share: float = field(0.5, gt=0, description="Sugar.")
    is_ripe: bool = field(False, description="Ripe.")
    colour: Literal["red", "green"] = field("red", description="Colour.")
    label: str = field("", pattern=r"^[a-z]*$", description="Label.")
    shelf: int | None = field(7, ge=0, description="Shelf.")
    crate: Path | None = field(None, name="crateURL", description="Crate.")
    owner: str = field(
        computed=lambda: "me", check=lambda text: "nobody" * (text == "me"), description="Owner."
    )


class Stone(SettingFields):
    shelf: int | None = field(1, description="Shelf.")
    weight: float = field(2.0, description="Weight.")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("seedCount", "8", 8),
        ("seedCount", 8.0, 8),
        ("sugarShare", "1e3", 1000.0),
        ("sugarShare", 2, 2.0),
        ("isRipe", "TRUE", True),
        ("isRipe", "0", False),
        ("colour", "green", "green"),
        ("shelf", "", None),
        ("shelf", None, None),
        ("shelf", "0", 0),
        ("crateURL", "a/b", Path("a/b")),
        ("crateURL", "", None),
    ],
)
def test_a_text_stands_for_a_value(name: str, given: object, value: object) -> None:
    taken = Fruit.of({name: given})
    assert taken.by_name() == {**Fruit.of({}).by_name(), name: value}
    assert len(taken.given) == 1


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("seedCount", "9", "give an integer from 1 below 9"),
        ("seedCount", "", "give an integer from 1 below 9"),
        ("seedCount", True, "give an integer from 1 below 9"),
        ("seedCount", None, "give an integer from 1 below 9"),
        ("sugarShare", "nan", "give a number above 0"),
        ("sugarShare", "inf", "give a number above 0"),
        ("isRipe", "perhaps", "give true, false"),
        ("colour", "blue", "give red, green"),
        ("label", "a\n", "give text like ^[a-z]*$"),
        ("label", 5, "give text like ^[a-z]*$"),
        ("shelf", -1, "give an integer from 0"),
        ("crateURL", 5, "give a path"),
        ("owner", "me", "nobody"),
        ("seed_count", "8", "it is no setting"),
    ],
)
def test_what_a_field_does_not_take_is_said(name: str, given: object, fault: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        Fruit.of({name: given})
    assert refused.value.faults == {name: fault}


def test_settings_are_told_apart_by_values_and_never_change() -> None:
    fruit = Fruit.of({"seedCount": 4})
    assert fruit == Fruit.of({}).but({"seed_count": 4}) != Fruit.of({})
    with pytest.raises(AttributeError, match="but"):
        fruit.seed_count = 5
    assert fruit.owner == "me"
    assert (Stone.part_of(fruit).shelf, Stone.part_of(fruit).weight) == (7, 2.0)
    changing = [each.name for each in Fruit.fields.values() if each.changes is Changes.AT_RUN_TIME]
    assert changing == ["seedCount"]
