"""Every move of the unit machine: what it needs, where it leads, whom the unit then names."""

from __future__ import annotations

import pytest

from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.log.records import SessionOp
from anabranch.core.log.verdicts import Verdict
from support.world import FIRST, HALVES, UNIT, A, B, C, World


def stands(world: World, state: UnitState, broker: str, source: str, unit: str = UNIT) -> None:
    found = world.unit(unit)
    assert (found.state, found.broker, found.source) == (state, broker, source)


def led() -> World:
    """Three brokers, the first of which leads."""
    world = World(A, B, C)
    world.elect(A)
    return world


@pytest.fixture
def world() -> World:
    """The first of three brokers leads, the second owns the unit."""
    world = led()
    world.owned(B)
    return world


def test_assign_goes_from_free_to_a_broker_with_a_session() -> None:
    world = World(A)
    assert world.tell(world.move(Move.ASSIGN, A, broker=B)) is Verdict.TARGET_UNKNOWN
    assert world.tell(world.move(Move.ASSIGN, A)) is Verdict.TARGET_UNKNOWN
    assert world.tell(world.move(Move.ASSIGN, A, broker=A)) is Verdict.ACCEPTED
    stands(world, UnitState.ASSIGNING, A, "")


def test_own_is_for_the_broker_that_the_unit_is_assigned_to() -> None:
    world = World(A, B)
    world.must(world.move(Move.ASSIGN, A, broker=B))
    assert world.tell(world.move(Move.OWN, A)) is Verdict.NOT_OWNER
    assert world.tell(world.move(Move.OWN, B)) is Verdict.ACCEPTED
    stands(world, UnitState.OWNED, B, "")


def test_release_names_a_destination_or_nobody_but_not_the_owner() -> None:
    world = World(A, B)
    world.owned(A)
    assert world.tell(world.move(Move.RELEASE, B, broker=C)) is Verdict.TARGET_UNKNOWN
    assert world.tell(world.move(Move.RELEASE, B, broker=A)) is Verdict.TARGET_IS_OWNER
    assert world.tell(world.move(Move.RELEASE, B, broker=B)) is Verdict.ACCEPTED
    stands(world, UnitState.RELEASING, B, A)
    assert world.unit().holder == A


def test_a_released_unit_is_handed_over_to_its_destination_by_its_owner() -> None:
    world = World(A, B)
    world.owned(A)
    world.must(world.move(Move.RELEASE, B, broker=B))
    assert world.tell(world.move(Move.FREE, A)) is Verdict.HAS_TARGET
    assert world.tell(world.move(Move.HAND_OVER, B)) is Verdict.NOT_OWNER
    assert world.tell(world.move(Move.HAND_OVER, A)) is Verdict.ACCEPTED
    stands(world, UnitState.ASSIGNING, B, "")


def test_a_unit_released_to_nobody_is_freed_by_its_owner() -> None:
    world = World(A, B)
    world.owned(A)
    world.must(world.move(Move.RELEASE, B))
    assert world.tell(world.move(Move.HAND_OVER, A)) is Verdict.NO_TARGET
    assert world.tell(world.move(Move.FREE, B)) is Verdict.NOT_OWNER
    assert world.tell(world.move(Move.FREE, A)) is Verdict.ACCEPTED
    stands(world, UnitState.FREE, "", "")


@pytest.mark.parametrize(
    "children",
    [
        ("0x00000000_0xffffffff",),
        ("0x00000000_0x7fffffff", "0x80000000_0xffffffff"),
        ("left", "right"),
    ],
)
def test_a_split_needs_children_that_tile_the_parent(children: tuple[str, ...]) -> None:
    world = World(A)
    world.owned(A)
    assert world.tell(world.move(Move.SPLIT, A, children=children)) is Verdict.CHILDREN_INVALID


def test_a_split_is_one_record_in_which_the_parent_goes_and_the_children_come() -> None:
    world = World(A, B)
    world.owned(A)
    world.must(world.move(Move.SPLIT, B, children=HALVES))
    stands(world, UnitState.SPLITTING, A, "")
    assert world.unit().children == HALVES
    assert world.tell(world.move(Move.SPLIT_COMMIT, B)) is Verdict.NOT_OWNER
    outcome = world.must(world.move(Move.SPLIT_COMMIT, A, children=("0x00000000_0x00000001",)))
    assert [name for name, _ in outcome.changes] == [UNIT, *(f"{FIRST}/{h}" for h in HALVES)]
    stands(world, UnitState.DELETED, "", "")
    assert world.unit().children == HALVES
    for half in HALVES:
        stands(world, UnitState.OWNED, A, "", f"{FIRST}/{half}")


def test_a_split_into_a_unit_that_exists_is_refused() -> None:
    world = World(A)
    world.owned(A)
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    world.replica.apply([(f"{FIRST}/{HALVES[0]}", world.unit())])
    assert world.tell(world.move(Move.SPLIT_COMMIT, A)) is Verdict.CHILD_EXISTS


def test_only_the_leader_of_this_epoch_tombstones_a_deleted_unit() -> None:
    world = led()
    world.owned(A)
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    world.must(world.move(Move.SPLIT_COMMIT, A))
    assert world.tell(world.move(Move.TOMBSTONE, B)) is Verdict.NOT_LEADER
    assert world.tell(world.move(Move.TOMBSTONE, A, epoch=9)) is Verdict.NOT_LEADER
    assert world.tell(world.move(Move.TOMBSTONE, A)) is Verdict.ACCEPTED
    assert world.replica.unit(UNIT) is None
    assert world.tell(world.move(Move.TOMBSTONE, A)) is Verdict.UNKNOWN_UNIT


@pytest.mark.parametrize("what", [Move.RECLAIM, Move.DISCARD])
def test_a_holder_that_ends_while_it_gives_up_is_not_waited_for(world: World, what: Move) -> None:
    world.must(world.move(Move.RELEASE, B, broker=C))
    world.expire(B, by=A)
    world.must(world.move(what, A, broker=C))
    assert world.unit().source == ""


def test_the_leader_reclaims_from_a_broker_whose_session_is_over(world: World) -> None:
    assert world.tell(world.move(Move.RECLAIM, A, broker=C)) is Verdict.HOLDER_ALIVE
    world.expire(B, by=A)
    assert world.tell(world.move(Move.RECLAIM, C, broker=C)) is Verdict.NOT_LEADER
    assert world.tell(world.move(Move.RECLAIM, A, broker=B)) is Verdict.TARGET_UNKNOWN
    assert world.tell(world.move(Move.RECLAIM, A, broker=C)) is Verdict.ACCEPTED
    stands(world, UnitState.ASSIGNING, C, "")


def test_a_unit_in_release_answers_to_its_owner_not_to_its_destination() -> None:
    world = led()
    world.owned(A)
    world.must(world.move(Move.RELEASE, A, broker=B))
    world.expire(B, by=A)
    assert world.tell(world.move(Move.RECLAIM, A, broker=C)) is Verdict.HOLDER_ALIVE
    world.must(world.move(Move.HAND_OVER, A))
    assert world.tell(world.move(Move.RECLAIM, A, broker=C)) is Verdict.ACCEPTED


def test_the_leader_discards_an_orphan_to_free(world: World) -> None:
    assert world.tell(world.move(Move.DISCARD, A)) is Verdict.HOLDER_ALIVE
    world.expire(B, by=A)
    assert world.tell(world.move(Move.DISCARD, C)) is Verdict.NOT_LEADER
    assert world.tell(world.move(Move.DISCARD, A)) is Verdict.ACCEPTED
    stands(world, UnitState.FREE, "", "")


def test_an_override_takes_a_stuck_unit_and_remembers_its_holder(world: World) -> None:
    assert world.tell(world.move(Move.OVERRIDE, A, broker=C)) is Verdict.ILLEGAL_MOVE
    world.must(world.move(Move.RELEASE, B, broker=C))
    assert world.tell(world.move(Move.OVERRIDE, B, broker=C)) is Verdict.NOT_LEADER
    assert world.tell(world.move(Move.OVERRIDE, A)) is Verdict.TARGET_UNKNOWN
    assert world.tell(world.move(Move.OVERRIDE, A, broker=C)) is Verdict.ACCEPTED
    stands(world, UnitState.ASSIGNING, C, B)


def test_a_stuck_split_is_overridden_too_and_forgets_its_children(world: World) -> None:
    world.must(world.move(Move.SPLIT, B, children=HALVES))
    world.must(world.move(Move.OVERRIDE, A, broker=C))
    stands(world, UnitState.ASSIGNING, C, B)
    assert world.unit().children == ()


def test_the_next_owner_waits_until_the_overridden_holder_has_read_that(world: World) -> None:
    world.overridden(B, by=A, target=C)
    at = world.unit().since_offset
    assert world.tell(world.move(Move.OWN, C)) is Verdict.SOURCE_UNSETTLED
    assert world.tell(world.move(Move.OWN, C, evidence=at)) is Verdict.SOURCE_UNSETTLED
    assert world.tell(world.move(Move.OWN, C, evidence=at + 1)) is Verdict.ACCEPTED
    stands(world, UnitState.OWNED, C, "")


@pytest.mark.parametrize("is_back", [False, True])
def test_the_next_owner_waits_for_no_session_that_is_over(world: World, is_back: bool) -> None:
    world.overridden(B, by=A, target=C)
    if is_back:
        world.must(world.session(B, SessionOp.OPEN))
    else:
        world.expire(B, by=A)
    assert world.tell(world.move(Move.OWN, C)) is Verdict.ACCEPTED


def test_an_overridden_holder_is_remembered_through_every_other_repair(world: World) -> None:
    world.overridden(B, by=A, target=C)
    world.must(world.move(Move.OVERRIDE, A, broker=A))
    stands(world, UnitState.ASSIGNING, A, B)
    world.must(world.move(Move.OVERRIDE, A, broker=C))
    world.expire(C, by=A)
    world.must(world.move(Move.RECLAIM, A, broker=A))
    stands(world, UnitState.ASSIGNING, A, B)
    world.must(world.move(Move.OVERRIDE, A, broker=B))
    world.must(world.session(C, SessionOp.OPEN))
    world.must(world.move(Move.OVERRIDE, A, broker=C))
    world.expire(C, by=A)
    world.must(world.move(Move.DISCARD, A))
    stands(world, UnitState.FREE, "", B)
    world.must(world.move(Move.ASSIGN, A, broker=A))
    stands(world, UnitState.ASSIGNING, A, B)
    assert world.tell(world.move(Move.OWN, A)) is Verdict.SOURCE_UNSETTLED


def test_leadership_is_elected_succeeded_and_resigned() -> None:
    world = World(A, B)
    world.elect(A)
    stands(world, UnitState.OWNED, A, "", LEADERSHIP)
    assert world.tell(world.move(Move.ELECT, B, LEADERSHIP)) is Verdict.ILLEGAL_MOVE
    assert world.tell(world.move(Move.SUCCEED, B, LEADERSHIP)) is Verdict.HOLDER_ALIVE
    world.expire(A, by=B)
    assert world.tell(world.move(Move.SUCCEED, B, LEADERSHIP)) is Verdict.ACCEPTED
    stands(world, UnitState.OWNED, B, "", LEADERSHIP)
    world.must(world.session(A, SessionOp.OPEN))
    assert world.tell(world.move(Move.RESIGN, A, LEADERSHIP)) is Verdict.NOT_OWNER
    assert world.tell(world.move(Move.RESIGN, B, LEADERSHIP)) is Verdict.ACCEPTED
    stands(world, UnitState.FREE, "", "", LEADERSHIP)
    world.elect(A)


def test_a_deposed_leader_is_fenced() -> None:
    world = led()
    world.owned(C)
    stale = world.move(Move.OVERRIDE, A, broker=B, epoch=world.unit(LEADERSHIP).version)
    world.expire(A, by=B)
    world.must(world.move(Move.SUCCEED, B, LEADERSHIP))
    assert world.tell(stale) is Verdict.ILLEGAL_MOVE
    world.must(world.session(A, SessionOp.OPEN))
    world.must(world.move(Move.RELEASE, C, broker=A))
    late = world.move(Move.OVERRIDE, A, broker=A, epoch=world.unit(LEADERSHIP).version - 1)
    assert world.tell(late) is Verdict.NOT_LEADER
