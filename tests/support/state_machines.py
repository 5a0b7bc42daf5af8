"""State machines that lack something, for bugs that are planted."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.core.log.state_machine import Case, Guard, StateMachine


def without(
    machine: StateMachine[Any], *omitted: Guard[Any, Any]
) -> dict[tuple[int, int], Case[Any]]:
    """What the fold looks up, without some guards."""
    rows = [
        msgspec.structs.replace(
            row, guards=tuple(guard for guard in row.guards if guard not in omitted)
        )
        for row in machine.rows
    ]
    return StateMachine(rows, machine.states).table
