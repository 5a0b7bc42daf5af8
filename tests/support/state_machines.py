"""State machines that lack something, for bugs that are planted."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
import pytest

from anabranch.core.log.state_machine import Case, Guard, StateMachine
from anabranch.core.topics import machine as topics_machine


def without(
    machine: StateMachine[Any, Any], *omitted: Guard[Any, Any]
) -> dict[tuple[int, int], Case[Any, Any]]:
    """What the fold looks up, without some guards."""
    rows = [
        msgspec.structs.replace(
            row, guards=tuple(guard for guard in row.guards if guard not in omitted)
        )
        for row in machine.rows
    ]
    return StateMachine(rows, machine.states, machine.fits).table


def topics_without(patch: pytest.MonkeyPatch, *guards: Guard[Any, Any]) -> None:
    """Lets all fold records of topics without these guards: nodes, and the audit."""
    patch.setattr(topics_machine, "_CASES", without(topics_machine.LAYOUTS, *guards))


def lead_elsewhere(
    machine: StateMachine[Any, Any],
    start: IntEnum,
    move: IntEnum,
    end: IntEnum,
    patch: pytest.MonkeyPatch,
) -> None:
    """Lets an arrow of the `transitions` machine lead to `end`, whatever its row says, as if it had
    when the fold's lookup was compiled. Raises ValueError where that is refused.
    """
    (arrow,) = machine.machine.events[move.name].transitions[start.name]
    patch.setattr(arrow, "dest", end.name)
    for place, case in machine.compiled().items():
        patch.setitem(machine.table, place, case)
