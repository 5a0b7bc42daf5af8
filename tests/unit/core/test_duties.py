"""What the leader looks after, and when it looks."""

from __future__ import annotations

from anabranch.core.duties import Duties
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import UnitMove
from support.stage import settings_for
from support.world import FIRST, HALVES, UNIT, A, B, World


class Office:
    """A leads; its notes begin at 100 s. Looks every 5 s at what is stuck for 10 s."""

    def __init__(self, world: World, **changes: object) -> None:
        self.world = world
        self.duties = Duties(settings_for(A, **changes))
        self.duties.start(world.replica, 100.0)
        self.looks = 0

    def repairs(self, now: float) -> list[Move]:
        replica, actor = self.world.replica, self.world.actor(A)
        if not self.duties.are_due(now):
            return []
        self.looks += 1
        found = self.duties.repairs(replica, actor, {A: 0}, now, 0, self.world.new_id)
        records: list[UnitMove] = list(found)
        return [record.move for record in records]


def led() -> World:
    world = World(A, B)
    world.elect(A)
    return world


def test_a_unit_is_stuck_from_when_it_was_seen_in_flight_and_not_from_each_time() -> None:
    for is_there in (True, False):
        world = led()
        assign = world.move(Move.ASSIGN, A, broker=B)
        if is_there:
            world.must(assign)
        office = Office(world)
        if not is_there:
            world.must(assign)
            office.duties.unit_changed(world.replica, UNIT, 100.0)
        office.duties.unit_changed(world.replica, UNIT, 106.0)  # told again
        assert office.repairs(109.5) == []
        assert office.repairs(114.5) != []


def test_it_looks_at_first_and_then_only_when_something_may_be_due() -> None:
    office = Office(led())
    looks = []
    for now in range(100, 112):
        assert office.repairs(float(now)) == []
        looks.append(office.looks)
    assert looks == [1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5]


def test_an_orphan_is_offered_again_after_a_while_until_somebody_has_it() -> None:
    world = led()
    world.owned(B)
    world.expire(B, A)
    office = Office(world, retry_s=1.0)
    first = office.repairs(100.0)
    assert len(first) == 1
    assert office.repairs(100.5) == []
    assert office.repairs(101.0) == first


def halved() -> World:
    """Two units, both B's, which were one."""
    world = led()
    world.owned(B)
    world.must(world.move(Move.SPLIT, B, children=HALVES))
    world.must(world.move(Move.SPLIT_COMMIT, B))
    return world


def test_no_more_is_proposed_at_once_than_a_burst() -> None:
    world = halved()
    world.expire(B, A)
    assert len(Office(world).repairs(100.0)) > 1
    assert len(Office(world, burst=1).repairs(100.0)) == 1


def test_no_more_that_is_stuck_is_taken_away_at_once_than_a_burst() -> None:
    world = halved()
    for half in HALVES:
        world.must(world.move(Move.RELEASE, A, f"{FIRST}/{half}"))
    assert Office(world).repairs(110.0) == [Move.OVERRIDE] * 2
    assert Office(world, burst=1).repairs(110.0) == [Move.OVERRIDE]
