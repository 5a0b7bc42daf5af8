"""What is said of a snapshot that is not what its writer had."""

from __future__ import annotations

from anabranch.broker.snapshots.fault import first_difference, gap_in_rings
from anabranch.core.log.state import Entity
from support.history import DEFAULT, mixed

UNIT = f"{DEFAULT}/0x00000000_0x40000000"


def _state() -> dict[str, Entity]:
    return dict(mixed().state.entities)


def test_the_first_key_that_differs_is_named() -> None:
    expected = _state()
    assert first_difference(expected, expected) == ""
    lacking = {key: entity for key, entity in expected.items() if key != UNIT}
    assert first_difference(lacking, expected) == f"{UNIT} is missing in it, by the log"
    assert first_difference(expected, lacking) == f"{UNIT} does not exist, by the log"
    other = expected | {UNIT: expected[f"{DEFAULT}/0x40000000_0x80000000"]}
    assert first_difference(other, expected).startswith(f"{UNIT} is Unit(")


def test_without_the_log_a_hole_in_a_ring_is_named() -> None:
    history = mixed()
    found = dict(history.state.entities)
    assert gap_in_rings(found) == ""
    first, *rest = (name.rpartition("/")[2] for name in history.units())
    del found[f"{DEFAULT}/{first}"]
    said = gap_in_rings(found)
    assert said == f"the bundles of {DEFAULT} do not tile its ring; there are {', '.join(rest)}"
