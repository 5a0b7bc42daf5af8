"""What `anabranch explain` says: what the fold then does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.entities.topic import Operation
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.explain import MoveNow, explain_topic, explain_unit
from anabranch.core.log.records import SessionOp, TopicChange, UnitMove
from anabranch.core.log.verdicts import Verdict
from support.random_log import TOPICS, random_record
from support.world import HALVES, TOPIC, UNIT, A, B, World


def moves(explanation: Any) -> dict[str, MoveNow]:
    return {each.move: each for each in explanation.moves}


def unit_moves(world: World, name: str = UNIT) -> dict[str, MoveNow]:
    return moves(explain_unit(world.replica, name))


def topic_moves(world: World) -> dict[str, MoveNow]:
    return moves(explain_topic(world.replica, TOPIC))


@pytest.fixture
def world() -> World:
    return World(A, B)


def test_a_possible_move_tells_where_it_leads_and_who_may_propose_it(world: World) -> None:
    world.owned(A)
    assert unit_moves(world)["RELEASE"] == MoveNow("RELEASE", "RELEASING", (A, B))
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    assert unit_moves(world)["SPLIT_COMMIT"] == MoveNow("SPLIT_COMMIT", "DELETED", (A,))


def test_a_forbidden_move_tells_the_guard_that_comes_last_in_its_way(world: World) -> None:
    world.must(world.move(Move.ELECT, B, LEADERSHIP))
    world.owned(A)
    gone = "the session of the responsible broker is over"
    assert unit_moves(world)["RECLAIM"].forbidden_by == gone
    world.must(world.session(A, SessionOp.CLOSE))
    assert unit_moves(world)["RECLAIM"] == MoveNow("RECLAIM", "ASSIGNING", (B,))


def test_what_only_a_broker_can_prove_is_not_claimed_for_it(world: World) -> None:
    world.must(world.move(Move.ELECT, B, LEADERSHIP))
    world.owned(A)
    world.must(world.move(Move.RELEASE, A, broker=""))
    world.must(world.move(Move.OVERRIDE, B, broker=B))
    proof = "an overridden holder has seen that it no longer is one"
    assert unit_moves(world)["OWN"].forbidden_by == proof


def test_where_no_broker_has_a_session_nothing_is_possible() -> None:
    world = World(A)
    world.must(world.session(A, SessionOp.CLOSE))
    assert unit_moves(world)["ASSIGN"].forbidden_by == "a broker has an open session"
    assert not any(each.by for each in topic_moves(world).values())


def test_a_topic_tells_what_its_controller_may_do(world: World) -> None:
    world.owned(A)
    assert topic_moves(world)["CREATE"] == MoveNow("CREATE", "CREATING", (A,))
    world.opened()
    found = topic_moves(world)
    assert found["BEGIN"] == MoveNow("BEGIN", "PREPARING", (A,))
    assert found["UPDATE"] == MoveNow("UPDATE", "STABLE", (A,))
    assert found["COMMIT"].forbidden_by == "it starts from SEALING"
    drained = "the segments are sealed roots that every subscription has drained"
    assert found["PRUNE"].forbidden_by == drained
    world.committed(Operation.SPLIT, world.scalable().layout.split_children(0))
    assert topic_moves(world)["PRUNE"] == MoveNow("PRUNE", "STABLE", (A,))


@pytest.mark.parametrize("name", [LEADERSHIP, UNIT])
def test_every_move_of_the_machine_is_explained(name: str) -> None:
    found = unit_moves(World(A), name).values()
    assert all(bool(each.by) != bool(each.forbidden_by) for each in found)


@given(st.randoms(use_true_random=False), st.integers(1, 80))
def test_what_the_fold_accepts_was_explained_as_possible(rng: random.Random, length: int) -> None:
    """Of a proposer's moves, but for what only the proposer can prove."""
    world = World(A, B)
    for _ in range(length):
        record = random_record(world, rng)
        if rng.random() < 0.7:  # to explain them all takes long
            world.tell(record)
            continue
        explained: dict[str, MoveNow] = {}
        if isinstance(record, UnitMove) and isinstance(world.replica.unit(record.unit), Unit):
            explained = unit_moves(world, record.unit)
        elif isinstance(record, TopicChange) and record.topic in TOPICS:
            explained = moves(explain_topic(world.replica, record.topic))
        verdict = world.tell(record)
        if not explained or verdict is not Verdict.ACCEPTED:
            continue
        assert isinstance(record, UnitMove | TopicChange)
        if record.move is not Move.OWN:
            assert record.actor in explained[record.move.name].by
