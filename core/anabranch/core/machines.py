"""What every table of arrows is made into: a lookup table, a `transitions` machine, a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Protocol, TypeVar, cast

from transitions import Machine


class Row(Protocol):
    """An arrow: from any of `starts` by `move` to `end` (None: the state stays as it is)."""

    @property
    def move(self) -> IntEnum: ...
    @property
    def starts(self) -> tuple[IntEnum, ...]: ...
    @property
    def end(self) -> IntEnum | None: ...


RowT = TypeVar("RowT", bound=Row)
StateT = TypeVar("StateT", bound=IntEnum)


class _Model:
    """The object a `transitions` machine drives; the machine adds `trigger` at run time."""

    state: str
    trigger: Callable[[str], bool]


def compile_arrows(arrows: Iterable[RowT]) -> dict[tuple[int, int], RowT]:
    """The lookup table of the hot path: (state, move) to arrow."""
    return {(start, arrow.move): arrow for arrow in arrows for start in arrow.starts}


def _steps(arrows: Iterable[Row]) -> Iterator[tuple[str, str, str]]:
    """Start, end and move of each single arrow, by name."""
    for arrow in arrows:
        for start in arrow.starts:
            yield start.name, (start if arrow.end is None else arrow.end).name, arrow.move.name


def build_machine(arrows: Iterable[Row], states: type[IntEnum]) -> Machine:
    """The table as a `transitions` machine, the form that can be driven step by step.

    It begins in the state of number 0.
    """
    return Machine(
        model=_Model(),
        states=[state.name for state in states],
        transitions=[
            {"trigger": move, "source": start, "dest": end} for start, end, move in _steps(arrows)
        ],
        initial=states(0).name,
        auto_transitions=False,
    )


def machine_step(machine: Machine, state: StateT, move: IntEnum) -> StateT | None:
    """Where the `transitions` machine goes; None when it has no such arrow."""
    if move.name not in machine.get_triggers(state.name):
        return None
    machine.set_state(state.name)
    model = cast(_Model, machine.model)
    model.trigger(move.name)
    return type(state)[model.state]


def mermaid(arrows: Iterable[Row]) -> str:
    """A Mermaid state diagram of the table, for the documentation."""
    lines = [f"    {start} --> {end}: {move}" for start, end, move in _steps(arrows)]
    return "\n".join(["stateDiagram-v2", *lines]) + "\n"
