"""The open matters of a part at the end of the log, for checks that need the whole to
judge them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import IN_FLIGHT, LEADERSHIP, Unit, UnitState
from anabranch.core.log.state import FoldedState

LOOSE_MAX: Final = 10_000  # for one part; the counts go on


class UnfinishedUnit(msgspec.Struct, frozen=True):
    """A unit in flight, or one that answers to a broker without an open session."""

    name: str
    state: UnitState
    responsible: str
    since_ms: int
    since_offset: int


class Unfinished(msgspec.Struct):
    """The open matters of one part, or of all of them."""

    in_flight: list[UnfinishedUnit] = []
    orphaned: list[UnfinishedUnit] = []
    answering: dict[str, int] = {}  # broker -> units that it answers for
    sample: dict[str, str] = {}  # broker -> one of them
    units: int = 0
    sessions: dict[str, Session] = {}
    cluster: Cluster | None = None


def unfinished_at_end(
    state: FoldedState, owns: Callable[[str], bool], *, with_sessions: bool
) -> Unfinished:
    """Looks through the state at the end of the log."""
    found = Unfinished()
    for key, entity in state.entities.items():
        if isinstance(entity, Session) and with_sessions:
            found.sessions[key.partition(":")[2]] = entity
        elif isinstance(entity, Cluster) and with_sessions:
            found.cluster = entity
        elif isinstance(entity, Unit) and owns(key):
            _look(found, state, key, entity)
    return found


def _look(found: Unfinished, state: FoldedState, key: str, unit: Unit) -> None:
    found.units += 1
    broker = unit.responsible
    unfinished = UnfinishedUnit(key, unit.state, broker, unit.since_ms, unit.since_offset)
    if unit.state in IN_FLIGHT and len(found.in_flight) < LOOSE_MAX:
        found.in_flight.append(unfinished)
    if not broker:
        return
    found.answering[broker] = found.answering.get(broker, 0) + 1
    if key != LEADERSHIP:
        found.sample.setdefault(broker, key)
    session = state.session(broker)
    if (session is None or not session.open) and len(found.orphaned) < LOOSE_MAX:
        found.orphaned.append(unfinished)


def combined(parts: list[Unfinished]) -> Unfinished:
    """Returns the open matters of the whole log."""
    whole = Unfinished()
    for part in parts:
        whole.in_flight += part.in_flight
        whole.orphaned += part.orphaned
        for broker, count in part.answering.items():
            whole.answering[broker] = whole.answering.get(broker, 0) + count
        whole.sample = part.sample | whole.sample
        whole.units += part.units
        whole.sessions |= part.sessions
        whole.cluster = whole.cluster or part.cluster
    return whole
