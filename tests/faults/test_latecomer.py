"""What the latecomer writes is a former leader's, and refused for nothing but its epoch."""

from __future__ import annotations

from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.log.records import SessionOp
from anabranch.core.log.state import leader_of
from anabranch.core.log.verdicts import Verdict
from faults.latecomer import late
from support.world import A, B, C, World


def passed_on() -> tuple[World, list[tuple[str, int]]]:
    """A cluster in which A led, and B does; and who led in which epoch."""
    world = World(A, B, C)
    led = []
    for leader in (A, B):
        world.elect(leader)
        led.append(leader_of(world.replica))
        if leader == A:
            world.must(world.move(Move.RESIGN, A, LEADERSHIP))
    return world, led


def test_a_former_leader_ends_the_session_of_whom_no_leader_looks_after() -> None:
    world, led = passed_on()
    world.owned(C)
    record = late(world.replica, led, world.now_ms)
    assert record is not None
    assert (record.actor, record.epoch, record.broker) == (*led[0], C)
    assert world.tell(record) is Verdict.NOT_LEADER


def test_nothing_is_written_about_who_owns_nothing_or_leads() -> None:
    world, led = passed_on()
    assert late(world.replica, led, world.now_ms) is None
    world.owned(B)
    assert late(world.replica, led, world.now_ms) is None


def test_nothing_is_written_before_leadership_has_passed_on_or_by_who_is_gone() -> None:
    world, led = passed_on()
    world.owned(C)
    assert late(world.replica, led[1:], world.now_ms) is None
    world.must(world.session(A, SessionOp.CLOSE))
    assert late(world.replica, led, world.now_ms) is None
