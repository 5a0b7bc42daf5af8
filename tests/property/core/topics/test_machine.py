"""One table, two readings: the topics' `transitions` machine, guards included, and the fold."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.log.records import TopicChange
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.layout import SegmentLayout, initial_segments
from anabranch.core.topics.machine import LAYOUTS
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import Operation, TopicMove, TopicState
from support.world import TOPIC, A, B, World

PAIRS = tuple(product(TopicState, TopicMove))


def world_in(state: TopicState) -> World:
    """A topic in `state` with a sealed root that nobody has to read, and with garbage."""
    world = World(A, B)
    world.owned(A)
    if state is TopicState.INIT:
        return world
    if state is TopicState.CREATING:
        world.must(world.topic(TopicMove.CREATE, segments=initial_segments(2)))
        return world
    world.opened()
    world.committed(Operation.SPLIT, world.scalable().layout.split_children(0))
    world.must(world.begin(Operation.SPLIT, world.scalable().layout.split_children(1)))
    world.must(world.topic(TopicMove.ABORT))
    if state is TopicState.DELETING:
        world.must(world.topic(TopicMove.DELETE))
    if state in (TopicState.PREPARING, TopicState.SEALING):
        world.must(world.begin(Operation.SPLIT, world.scalable().layout.split_children(1)))
    if state is TopicState.SEALING:
        world.must(world.topic(TopicMove.SEALING))
    return world


def children(world: World) -> tuple[SegmentInfo, ...]:
    """Of segment 1, whether or not it may be split now."""
    topic = world.replica.topic(TOPIC)
    layout = topic.layout if topic else SegmentLayout.initial(2)
    return layout.split_children(1)


def favourable(world: World, move: TopicMove) -> dict[str, Any]:
    """Fields with which every guard of the move holds, if it is the move's turn."""
    match move:
        case TopicMove.CREATE:
            return {"segments": initial_segments(2)}
        case TopicMove.BEGIN:
            split = {"operation": Operation.SPLIT, "parents": (1,)}
            return {**split, "segments": children(world)}
        case TopicMove.COMMIT:
            return {"end_offsets": (3, 4)}
        case TopicMove.PRUNE:
            return {"segment_ids": (0,)}
        case TopicMove.CLEAR:
            return {"segment_ids": (4, 5)}
        case _:
            return {}


def stepped(world: World, state: TopicState, record: TopicChange) -> object:
    """Where the machine goes; before a topic is there, no guard looks at it."""
    return LAYOUTS.step(state, record.move, world.replica, world.replica.topic(TOPIC), record)


def reached(world: World) -> TopicState:
    topic = world.replica.topic(TOPIC)
    return topic.state if topic is not None else TopicState.INIT


@pytest.mark.parametrize(("state", "move"), PAIRS)
def test_machine_and_fold_agree_on_every_state_and_move(state: TopicState, move: TopicMove) -> None:
    world = world_in(state)
    assert reached(world) is state
    case = LAYOUTS.table.get((state, move))
    expected = None if case is None else state if case.row.end is None else case.row.end
    record = world.topic(move, **favourable(world, move))
    assert stepped(world, state, record) is expected
    verdict = world.tell(record)
    if expected is not None:
        assert verdict is Verdict.ACCEPTED
        assert reached(world) is expected
    else:
        unknown = state is TopicState.INIT
        assert verdict is (Verdict.UNKNOWN_TOPIC if unknown else Verdict.ILLEGAL_MOVE)
        assert reached(world) is state


def test_the_machine_has_one_arrow_for_each_pair_and_reaches_every_state() -> None:
    assert len(LAYOUTS.table) == sum(len(arrow.starts) for arrow in LAYOUTS.rows)
    assert {arrow.end for arrow in LAYOUTS.rows} - {None} == set(TopicState)
    assert {arrow.move for arrow in LAYOUTS.rows} == set(TopicMove)


@given(
    st.lists(st.tuples(st.sampled_from(TopicMove), st.randoms(use_true_random=False)), max_size=30)
)
def test_they_agree_along_random_logs(steps: list[tuple[TopicMove, random.Random]]) -> None:
    """The machine follows a topic through a log of which most proposals fail."""
    world = world_in(TopicState.CREATING)
    for move, rng in steps:
        before = world.scalable() if world.replica.topic(TOPIC) else None
        state = reached(world)
        fields: dict[str, Any] = {}
        if move in (TopicMove.CREATE, TopicMove.COMMIT) or before is None:
            fields = favourable(world, move)
        elif move is TopicMove.BEGIN and before.layout.active[0].size > 1:
            layout = before.layout
            made = layout.split_children(layout.active[0].segment_id)
            fields = {"operation": Operation.SPLIT, "parents": made[0].parent_ids}
            fields["segments"] = rng.choice((made, made, made[:1]))
        elif move is TopicMove.PRUNE:
            fields = {"segment_ids": tuple(p.segment_id for p in before.segments if p.child_ids)}
        elif move is TopicMove.CLEAR:
            fields = {"segment_ids": tuple(part.segment_id for part in before.garbage)}
        record = world.topic(move, rng.choice((A, A, A, B)), **fields)
        goes_to = stepped(world, state, record)
        outcome = world.fold(record).outcome
        if outcome.verdict is Verdict.ACCEPTED:
            assert goes_to is reached(world)
        else:
            assert outcome.changes == ()
            assert goes_to is None or outcome.verdict is Verdict.INVALID_VALUE
