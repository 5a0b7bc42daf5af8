"""The possible moves of a unit or a topic now, and for each other move the guard that forbids it.

The module asks the machine with trial records that are as favourable as the state allows. Every
broker with an open session proposes them, to every destination, with children and segments that
fit. Some facts only a broker can prove, such as that an overridden holder has seen its loss. The
trial records do not claim these facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import product
from typing import Any

import msgspec

from anabranch.core.bundles.machine import BUNDLES, LEADING
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.records import TopicChange, UnitMove
from anabranch.core.log.state import StateQueries, leader_of
from anabranch.core.log.state_machine import StateMachine
from anabranch.core.ring import split_bundle_name
from anabranch.core.topics.machine import LAYOUTS


class MoveNow(msgspec.Struct, frozen=True):
    """A present move of a machine. `end`: the state it leads to, if it is possible. `by`: the
    brokers that may propose it then. `forbidden_by`: the guard, or the place, that forbids it.
    """

    move: str
    end: str = ""
    by: tuple[str, ...] = ()
    forbidden_by: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """A unit or a topic, its state and version (0: it is not there), and all of its moves."""

    name: str
    state: str
    version: int
    moves: tuple[MoveNow, ...]


def explain_unit(state: StateQueries, name: str) -> Explanation:
    """Explains a bundle, by its full name, or the leadership."""
    machine = LEADING if name == LEADERSHIP else BUNDLES
    unit = state.unit(name) or Unit(UnitState.INIT, "", "", 0, Move.CREATE, 0, -1, "")
    brokers = _acting(state)
    others = [broker for broker, _ in brokers if broker != unit.broker]
    epoch, children = leader_of(state)[1], _halves(name)

    def trials(move: IntEnum) -> Iterator[UnitMove]:
        for (broker, session), target in product(brokers, ("", *others[:1], unit.broker)):
            yield UnitMove(
                proposal_id="",
                unit=name,
                move=Move(move),
                version=unit.version + 1,
                actor=broker,
                session=session,
                broker=target,
                epoch=epoch,
                children=children,
            )

    return Explanation(
        name, unit.state.name, unit.version, _moves(machine, unit.state, state, unit, trials)
    )


def explain_topic(state: StateQueries, name: str) -> Explanation:
    """A scalable topic, `tenant/namespace/name`."""
    topic = state.topic(name)
    start = topic.state if topic is not None else TopicState.INIT
    version = topic.version if topic is not None else 0
    brokers = _acting(state)

    def trials(move: IntEnum) -> Iterator[TopicChange]:
        for (broker, session), fields in product(brokers, _favourable(topic, TopicMove(move))):
            yield TopicChange(
                proposal_id="",
                topic=name,
                move=TopicMove(move),
                version=version + 1,
                actor=broker,
                session=session,
                **fields,
            )

    return Explanation(name, start.name, version, _moves(LAYOUTS, start, state, topic, trials))


def _acting(state: StateQueries) -> list[tuple[str, int]]:
    """The brokers that have an open session, and its number."""
    return [(broker, each.version) for broker, each in state.sessions() if each.open]


def _halves(unit: str) -> tuple[str, ...]:
    if unit == LEADERSHIP:
        return ()
    whole = split_bundle_name(unit)[1]
    return tuple(str(part) for part in whole.halves()) if whole.splittable else ()


def _favourable(topic: ScalableTopic | None, move: TopicMove) -> list[dict[str, Any]]:
    """Fields of the move's records; a record with them fits if any can."""
    if topic is None:
        return [{"segments": initial_segments(1)}]
    match move:
        case TopicMove.BEGIN:
            made = [topic.layout.split_children(part.segment_id) for part in topic.layout.active]
            split = Operation.SPLIT
            return [
                {"operation": split, "parents": each[0].parent_ids, "segments": each}
                for each in made
            ]
        case TopicMove.COMMIT:
            parents = (topic.segment(each) for each in topic.parents)
            return [{"end_offsets": (0,) * sum(part.buckets for part in parents if part)}]
        case TopicMove.PRUNE:
            roots = [part.segment_id for part in topic.segments if not part.parent_ids]
            return [{"segment_ids": (each,)} for each in roots]
        case TopicMove.LOST:
            return [
                {"segment_ids": (part.segment_id,), "end_offsets": part.end_offsets}
                for part in topic.segments
                if not part.is_active
            ] or [{}]
        case TopicMove.CLEAR:
            return [{"segment_ids": tuple(part.segment_id for part in topic.garbage)}]
        case _:
            return [{}]


def _moves(
    machine: StateMachine[Any, Any],
    start: IntEnum,
    state: StateQueries,
    entity: object,
    trials: Callable[[IntEnum], Iterable[Any]],
) -> tuple[MoveNow, ...]:
    moves = dict.fromkeys(row.move for row in machine.rows)
    return tuple(_move(machine, start, move, state, entity, trials(move)) for move in moves)


def _move(
    machine: StateMachine[Any, Any],
    start: IntEnum,
    move: IntEnum,
    state: StateQueries,
    entity: object,
    trials: Iterable[Any],
) -> MoveNow:
    case = machine.table.get((start, move))
    if case is None:
        starts = [begin.name for row in machine.rows if row.move is move for begin in row.starts]
        return MoveNow(move.name, forbidden_by=f"it starts from {' or '.join(starts)}")
    by: dict[str, None] = {}
    furthest = -1
    for record in trials:
        failing = (
            at for at, (holds, _) in enumerate(case.checks) if not holds(state, entity, record)
        )
        place = next(failing, None)
        if place is None:
            by[record.actor] = None
        else:
            furthest = max(furthest, place)
    if by:
        return MoveNow(move.name, case.end.name, tuple(by))
    if furthest < 0:
        return MoveNow(move.name, forbidden_by="a broker has an open session")
    return MoveNow(move.name, forbidden_by=case.row.guards[furthest].says)
