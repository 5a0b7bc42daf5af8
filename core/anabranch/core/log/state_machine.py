"""A state machine as a table of rows. The rows make a `transitions` machine, and that makes the
lookup table of the hot path and the picture.

A row says the states that a move may start from, the state it leads to, and the guards that must
hold. The machine has the guards as the conditions of its transitions, so that driving it asks the
same as the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, unique
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec
from transitions import Machine, Transition

from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict

EntityT = TypeVar("EntityT")
RecordT = TypeVar("RecordT")


class Guard(msgspec.Struct, Generic[EntityT, RecordT], frozen=True):
    """A condition of a row: in words, as a predicate, and as the reason of a rejection.

    `holds` is asked with the state, the entity before the move, and the record.
    """

    says: str
    holds: Callable[[StateReader, EntityT, RecordT], bool]
    refusal: Verdict


class Row(Protocol):
    """An arrow: from any of `starts` by `move` to `end` (None: the state stays as it is)."""

    @property
    def move(self) -> IntEnum: ...
    @property
    def starts(self) -> tuple[IntEnum, ...]: ...
    @property
    def end(self) -> IntEnum | None: ...
    @property
    def guards(self) -> tuple[Guard[Any, Any], ...]: ...


RowT = TypeVar("RowT", bound=Row)
_Holds = Callable[[Any, Any, Any], bool]


class Arrow(msgspec.Struct, frozen=True):
    """A row that says no more than every row must."""

    move: IntEnum
    starts: tuple[IntEnum, ...]
    end: IntEnum | None
    guards: tuple[Guard[Any, Any], ...]


@unique
class Existence(IntEnum):
    """The states of an entity that has no others."""

    ABSENT = 0
    PRESENT = 1


class Case(msgspec.Struct, Generic[RowT], frozen=True):
    """The row that the hot path finds for a state and a move, with the row's guards in order."""

    row: RowT
    checks: tuple[tuple[_Holds, Verdict], ...]

    def refusal(self, state: StateReader, entity: object, record: object) -> Verdict | None:
        """The reason of the first guard that does not hold."""
        for holds, verdict in self.checks:
            if not holds(state, entity, record):
                return verdict
        return None


class _Transition(Transition):
    """A transition that knows its row."""

    def __init__(self, *arguments: Any, row: Row) -> None:
        super().__init__(*arguments)
        self.row = row


class _RowMachine(Machine):
    transition_cls = _Transition


class _Model:
    """The object that a `transitions` machine drives; the machine adds `trigger` at run time."""

    state: str
    trigger: Callable[..., bool]


class StateMachine(Generic[RowT]):
    """A table as the machine that it is. `rows` may have one row for each state and move."""

    def __init__(self, rows: Sequence[RowT], states: type[IntEnum]) -> None:
        self.rows: Final = tuple(rows)
        self.states: Final = states
        self._model = _Model()
        self.machine: Final = _RowMachine(
            model=self._model,
            states=[state.name for state in states],
            transitions=[
                {
                    "trigger": row.move.name,
                    "source": [start.name for start in row.starts],
                    "dest": "=" if row.end is None else row.end.name,
                    "conditions": [guard.holds for guard in row.guards],
                    "row": row,
                }
                for row in rows
            ],
            initial=states(0).name,
            auto_transitions=False,
        )
        self.table: Final[dict[tuple[int, int], Case[RowT]]] = {
            (states[arrow.source], arrow.row.move): _case(arrow) for arrow in self._arrows()
        }

    def _arrows(self) -> list[_Transition]:
        """The machine's transitions, in the order of the rows."""
        return [
            cast(_Transition, arrow)
            for row in self.rows
            for start in row.starts
            for arrow in self.machine.events[row.move.name].transitions[start.name]
        ]

    def step(self, start: IntEnum, move: IntEnum, *asked: Any) -> IntEnum | None:
        """Drives the machine from `start`; None when it has no such arrow, or a guard forbids it.

        `asked`: the arguments of the guards.
        """
        if move.name not in self.machine.get_triggers(start.name):
            return None
        self.machine.set_state(start.name)
        return self.states[self._model.state] if self._model.trigger(move.name, *asked) else None

    def mermaid(self) -> str:
        """A Mermaid state diagram, for the documentation."""
        lines = [
            f"    {arrow.source} --> {arrow.dest}: {arrow.row.move.name}"
            for arrow in self._arrows()
        ]
        return "\n".join(["stateDiagram-v2", *lines]) + "\n"


def _case(arrow: _Transition) -> Case[Any]:
    """The conditions are the machine's own; the row adds what their failing is called."""
    conditions = (cast(_Holds, condition.func) for condition in arrow.conditions)
    refusals = (guard.refusal for guard in arrow.row.guards)
    return Case(arrow.row, tuple(zip(conditions, refusals, strict=True)))
