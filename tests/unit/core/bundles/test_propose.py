"""What brokers propose: pure functions from a state to records, none of which the fold refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.bundles import give_away, propose
from anabranch.core.bundles.propose import Chosen
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import Cause, PolicyOp, SessionOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.ring import parse_range
from anabranch.core.sessions.lease import Heartbeat
from support.there import there
from support.world import FIRST, HALVES, UNIT, A, B, C, World


@pytest.fixture
def world() -> World:
    world = World(A, B, C)
    world.elect(A)
    return world


def several(world: World, owner: str) -> list[str]:
    """Five more bundles, which are the owner's."""
    names = [f"public/n{index}/0x00000000_0xffffffff" for index in range(5)]
    for name in names:
        world.must(world.namespace(name.rpartition("/")[0], PolicyOp.CREATE, bundles=1))
        world.owned(owner, name)
    return names


# --- requests -------------------------------------------------------------------------------


def test_assign_chooses_for_a_free_unit_only_and_only_with_a_candidate() -> None:
    world = World(A, B)
    actor = world.actor(A)
    record = there(propose.assign(actor, UNIT, world.unit(), {A: 3, B: 1}, "p"))
    assert (record.move, record.broker, record.cause) == (Move.ASSIGN, B, Cause.LOOKUP)
    assert propose.assign(actor, UNIT, world.unit(), {}, "p") is None
    world.must(record)
    assert propose.assign(actor, UNIT, world.unit(), {A: 3, B: 1}, "p") is None


def test_a_proposal_says_for_whom_it_is_made_and_what_its_choice_rested_on(world: World) -> None:
    actor = replace(world.actor(A), principal="ops", proxied_by="proxy")
    grounds = (Grounds("rule", 2, 0.5, 0.4, ()),)

    def choose(*_: object, **__: object) -> Chosen:
        return B, grounds

    given = propose.assign(actor, UNIT, world.unit(), {B: 0}, "p", choose)
    wanted = world.move(Move.ASSIGN, A, broker=B, epoch=0, cause=Cause.LOOKUP, choice=grounds)
    assert given == replace(wanted, proposal_id="p", principal="ops", proxied_by="proxy")
    world.owned(A)
    _, left = give_away.offers(world.replica, actor, {B: 0}, world.new_id, choose)
    world.must(left)
    units = [(UNIT, world.unit())]
    (taken,) = propose.stuck(units, lambda *_: 1.0, 1.0, actor, {B: 0}, world.new_id, choose)
    assert left.choice == taken.choice == grounds


def test_release_leaves_alone_what_is_not_owned_or_is_there_already() -> None:
    world = World(A, B)
    actor, cause = world.actor(B), Cause.OPERATOR
    assert propose.release(actor, UNIT, world.unit(), B, "p", cause) is None
    world.owned(A)
    assert propose.release(actor, UNIT, world.unit(), A, "p", cause) is None
    record = there(propose.release(actor, UNIT, world.unit(), "", "p", cause))
    assert world.tell(record) is Verdict.ACCEPTED


def test_split_cuts_in_halves_or_where_it_is_told() -> None:
    world = World(A)
    actor = world.actor(A)
    assert propose.split(actor, UNIT, world.unit(), (), "p") is None
    world.owned(A)
    halves = propose.split(actor, UNIT, world.unit(), (), "p")
    thirds = there(propose.split(actor, UNIT, world.unit(), (0x40000000, 0x80000000), "p"))
    assert there(halves).children == HALVES
    assert [parse_range(c).lower for c in thirds.children] == [0, 0x40000000, 0x80000000]
    assert world.tell(thirds) is Verdict.ACCEPTED


def test_a_bundle_that_cannot_be_divided_so_is_refused_at_once() -> None:
    world = World(A)
    single = f"{FIRST}/0x00000000_0x00000001"
    with pytest.raises(InvalidInputError, match="cannot be split"):
        propose.split(world.actor(A), single, world.unit(), (), "p")
    with pytest.raises(InvalidInputError, match="cannot be cut"):
        propose.split(world.actor(A), UNIT, world.unit(), (0,), "p")


# --- an owner's own steps -------------------------------------------------------------------


def step(world: World, broker: str) -> Move | None:
    record = propose.next_step(
        world.replica, world.actor(broker), UNIT, world.unit(), lambda _: None, world.new_id
    )
    return None if record is None else record.move


def test_each_state_in_flight_has_one_next_step_for_one_broker(world: World) -> None:
    assert step(world, A) is None
    world.must(world.move(Move.ASSIGN, A, broker=B))
    assert (step(world, A), step(world, B)) == (None, Move.OWN)
    world.must(world.move(Move.OWN, B))
    assert (step(world, A), step(world, B)) == (None, None)
    world.must(world.move(Move.RELEASE, A, broker=C))
    assert (step(world, B), step(world, C)) == (Move.HAND_OVER, None)
    world.must(world.move(Move.HAND_OVER, B))
    world.must(world.move(Move.OWN, C))
    world.must(world.move(Move.RELEASE, A))
    assert (step(world, C), step(world, B)) == (Move.FREE, None)
    world.must(world.move(Move.FREE, C))
    world.owned(A)
    world.must(world.move(Move.SPLIT, B, children=HALVES))
    assert (step(world, A), step(world, B)) == (Move.SPLIT_COMMIT, None)


def test_an_own_that_the_fold_would_refuse_is_not_proposed(world: World) -> None:
    world.owned(B)
    world.overridden(B, by=A, target=C)
    assert step(world, C) is None
    world.expire(B, by=A)
    assert step(world, C) is Move.OWN


def test_an_own_tells_up_to_where_the_former_holder_has_read(world: World) -> None:
    world.owned(B)
    world.overridden(B, by=A, target=C)
    seen = Heartbeat(B, 1, 1, 0.0, "serving", world.unit().since_offset + 1, "", -1, "", "", "")

    def evidence(beat: Heartbeat | None, owner: str = C) -> int:
        actor, unit = world.actor(owner), world.unit()
        found = propose.next_step(world.replica, actor, UNIT, unit, lambda _: beat, world.new_id)
        assert there(found).move is Move.OWN
        return there(found).evidence

    assert evidence(seen) == seen.next_offset
    world.expire(B, by=A)
    assert evidence(None) == 0
    world.must(world.move(Move.OWN, C))
    world.must(world.move(Move.RELEASE, A, broker=A))
    world.must(world.move(Move.HAND_OVER, C))
    assert evidence(seen, A) == 0  # nobody was overridden


# --- the leader's duties --------------------------------------------------------------------


def test_orphans_go_to_the_least_loaded_and_a_released_one_to_its_destination(world: World) -> None:
    world.owned(B)
    world.must(world.move(Move.RELEASE, B, broker=C))
    world.expire(B, by=A)
    found = list(propose.orphans(world.replica, world.actor(A), {A: 0, C: 9}, world.new_id))
    assert [(r.move, r.broker, r.cause) for r in found] == [(Move.RECLAIM, C, Cause.ORPHAN)]
    assert world.tell(found[0]) is Verdict.ACCEPTED


def test_without_a_broker_to_take_them_orphans_are_discarded(world: World) -> None:
    world.owned(B)
    assert list(propose.orphans(world.replica, world.actor(A), {}, world.new_id)) == []
    world.expire(B, by=A)
    (record,) = propose.orphans(world.replica, world.actor(A), {}, world.new_id)
    assert record.move is Move.DISCARD
    assert world.tell(record) is Verdict.ACCEPTED
    assert world.unit().state is UnitState.FREE


def test_leadership_is_no_orphan_that_a_leader_reclaims(world: World) -> None:
    world.owned(A)
    world.expire(A, by=B)
    found = list(propose.orphans(world.replica, world.actor(B), {B: 0}, world.new_id))
    assert [record.unit for record in found] == [UNIT]


def test_orphans_are_spread_as_they_are_proposed(world: World) -> None:
    several(world, B)
    world.expire(B, by=A)
    counts = {A: 0, C: 3}
    found = list(propose.orphans(world.replica, world.actor(A), counts, world.new_id))
    assert (sorted(record.broker for record in found), counts) == ([A, A, A, A, C], {A: 0, C: 3})


def test_only_units_in_flight_for_too_long_are_stuck(world: World) -> None:
    world.owned(B)
    owned = [(UNIT, world.unit())]
    world.must(world.move(Move.RELEASE, B))
    released = [(UNIT, world.unit())]

    def stuck(units: list[tuple[str, Unit]], waited_s: float, *brokers: str) -> list[str]:
        counts = dict.fromkeys(brokers, 0)
        found = propose.stuck(
            units, lambda name, unit: waited_s, 30.0, world.actor(A), counts, world.new_id
        )
        return [record.broker for record in found]

    assert stuck(owned, 99.0, A, C) == []
    assert stuck(released, 29.0, A, C) == []
    assert stuck(released, 30.0, C) == [C]
    assert stuck(released, 30.0, B) == []  # from whom it is to be taken


def test_stuck_units_are_spread_as_they_are_taken(world: World) -> None:
    world.owned(B)  # is not in flight
    names = several(world, B)
    for name in names:
        world.must(world.move(Move.RELEASE, B, name))
    units = [(name, world.unit(name)) for name in (UNIT, *names)]
    counts = {A: 0, B: 0, C: 3}
    found = propose.stuck(units, lambda *_: 30.0, 30.0, world.actor(A), counts, world.new_id)
    assert sorted(record.broker for record in found) == [A, A, A, A, C]
    assert counts == {A: 0, B: 0, C: 3}


def test_tombstones_wait_for_their_delay_on_the_logs_clock(world: World) -> None:
    world.owned(A)
    world.must(world.move(Move.SPLIT, A, children=HALVES))
    world.must(world.move(Move.SPLIT_COMMIT, A))
    units, since = [(UNIT, world.unit())], world.unit().since_ms
    actor = world.actor(A)
    assert list(propose.tombstones(units, since + 999, 1000, actor, world.new_id)) == []
    (record,) = propose.tombstones(units, since + 1000, 1000, actor, world.new_id)
    assert world.tell(record) is Verdict.ACCEPTED


def test_expiry_is_for_the_leader_or_against_it_and_never_against_oneself(world: World) -> None:
    state = world.replica
    assert propose.expiry(state, world.actor(A), A, 0, world.new_id()) is None
    assert propose.expiry(state, world.actor(B), C, 0, world.new_id()) is None
    assert propose.expiry(state, world.actor(A), "d:1", 0, world.new_id()) is None
    against_leader = there(propose.expiry(state, world.actor(B), A, 77, world.new_id()))
    by_leader = there(propose.expiry(state, world.actor(A), C, 88, world.new_id()))
    why = (by_leader.op, by_leader.evidence_ms, by_leader.cause)
    assert why == (SessionOp.EXPIRE, 88, Cause.SILENCE)
    assert world.tell(by_leader) is Verdict.ACCEPTED
    assert propose.expiry(state, world.actor(A), C, 0, world.new_id()) is None
    assert world.tell(against_leader) is Verdict.ACCEPTED


def test_leadership_is_claimed_when_it_is_free_or_its_holder_is_gone() -> None:
    world = World(A, B)
    claim = there(propose.leadership(world.replica, world.actor(A), world.new_id()))
    assert (claim.unit, claim.move) == (LEADERSHIP, Move.ELECT)
    world.must(claim)
    assert propose.leadership(world.replica, world.actor(B), world.new_id()) is None
    world.expire(A, by=B)
    claim = there(propose.leadership(world.replica, world.actor(B), world.new_id()))
    assert claim.move is Move.SUCCEED
    assert world.tell(claim) is Verdict.ACCEPTED


# --- a graceful stop ------------------------------------------------------------------------


def test_a_leaver_resigns_first_and_then_spreads_its_units(world: World) -> None:
    world.owned(A)
    found = list(give_away.offers(world.replica, world.actor(A), {A: 0, B: 1, C: 0}, world.new_id))
    assert [(r.move, r.broker) for r in found] == [(Move.RESIGN, ""), (Move.RELEASE, C)]
    assert not give_away.nothing_left(world.replica, A)
    for record in found:
        world.must(record)
    assert not give_away.nothing_left(world.replica, A)
    world.must(world.move(Move.HAND_OVER, A))
    assert give_away.nothing_left(world.replica, A)
    assert list(give_away.offers(world.replica, world.actor(A), {}, world.new_id)) == []


def test_a_leavers_units_are_spread_over_the_others_as_they_are_given_away(world: World) -> None:
    several(world, B)
    counts = {A: 0, B: 0, C: 3}
    found = list(give_away.offers(world.replica, world.actor(B), counts, world.new_id))
    assert sorted(record.broker for record in found) == [A, A, A, A, C]
    assert counts == {A: 0, B: 0, C: 3}
