"""A state machine as a table of rows. The rows make a `transitions` machine, and that makes the
lookup table of the hot path and the picture.

A row says from which states a move may start, where it leads, and which guards must hold. The
machine has the guards as the conditions of its transitions, so that driving it asks what the fold
asks. The lookup takes starts, guards and ends from the machine's arrows, and the fold takes the
next state from the lookup, so that machine and fold cannot differ.
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
StateT = TypeVar("StateT", bound=IntEnum)
Fits = Callable[[IntEnum, IntEnum], bool]
"""Says of a move and a state if records of that move can make an entity of that state."""
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


def keeps_nothing(*moves: IntEnum) -> Fits:
    """These moves lead to ABSENT: their records say nothing that could be kept."""
    return lambda move, end: end is Existence.ABSENT or move not in moves


class Case(msgspec.Struct, Generic[RowT, StateT], frozen=True):
    """An entry of the hot path's lookup, by state and move: the row, the state that the machine's
    arrow leads to, and the arrow's guards in order.
    """

    row: RowT
    end: StateT
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


class StateMachine(Generic[RowT, StateT]):
    """A table as the machine that it is. `rows` may have one row for each state and move.

    The first of `states` is that of what is not there. Raises ValueError, as `compiled` does.
    """

    def __init__(
        self, rows: Sequence[RowT], states: type[StateT], fits: Fits = lambda move, end: True
    ) -> None:
        self.rows: Final = tuple(rows)
        self.states: Final = states
        self.fits: Final = fits
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
        self.table: Final = self.compiled()

    def compiled(self) -> dict[tuple[int, int], Case[RowT, StateT]]:
        """Returns the lookup of the hot path, by state and move, from the machine's arrows alone.

        Raises ValueError for a second arrow of a move from a state, and for an arrow to something
        that is no state, or that no record of the move can make.
        """
        table: dict[tuple[int, int], Case[RowT, StateT]] = {}
        for arrow in self._arrows():
            move = arrow.row.move
            start, end = self.states[arrow.source], self.states.__members__.get(arrow.dest or "")
            if (start, move) in table:
                raise ValueError(f"{_line(arrow)}: {move.name} leads from {start.name} already")
            if end is None:
                raise ValueError(f"{_line(arrow)}: no state of {self.states.__name__}")
            if not self.fits(move, end):
                raise ValueError(f"{_line(arrow)}: a record of {move.name} cannot make {end.name}")
            table[start, move] = Case(cast(RowT, arrow.row), end, _checks(arrow))
        return table

    def _arrows(self) -> list[_Transition]:
        """The machine's transitions by move, in the order of the rows."""
        return [
            cast(_Transition, arrow)
            for event in self.machine.events.values()
            for arrows in event.transitions.values()
            for arrow in arrows
        ]

    def step(self, start: StateT, move: IntEnum, *asked: Any) -> StateT | None:
        """Drives the machine from `start`; None when it has no such arrow, or a guard forbids it.

        `asked`: the arguments of the guards.
        """
        if move.name not in self.machine.get_triggers(start.name):
            return None
        self.machine.set_state(start.name)
        return self.states[self._model.state] if self._model.trigger(move.name, *asked) else None

    def mermaid(self) -> str:
        """A Mermaid state diagram, for the documentation."""
        lines = [f"    {_line(arrow)}" for arrow in self._arrows()]
        return "\n".join(["stateDiagram-v2", *lines]) + "\n"


def _line(arrow: _Transition) -> str:
    return f"{arrow.source} --> {arrow.dest}: {arrow.row.move.name}"


def _checks(arrow: _Transition) -> tuple[tuple[_Holds, Verdict], ...]:
    """The conditions are the machine's own; the row adds what their failing is called."""
    conditions = (cast(_Holds, condition.func) for condition in arrow.conditions)
    refusals = (guard.refusal for guard in arrow.row.guards)
    return tuple(zip(conditions, refusals, strict=True))
