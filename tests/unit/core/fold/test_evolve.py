"""The fold's verdicts outside the arrows: versions, sessions, policies, and their precedence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.fold.evolve import evolve
from anabranch.core.log.records import PolicyOp, Record, SessionOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.ring import BUNDLES_MAX
from support.world import FIRST, SETTINGS, A, B, C, World


@pytest.fixture
def world() -> World:
    return World(A)


def test_verdict_numbers_are_fixed() -> None:
    assert [verdict.value for verdict in Verdict] == list(range(46))
    fixed = (Verdict.ACCEPTED, Verdict.CLUSTER_EXISTS, Verdict.TOPIC_BUSY, Verdict.UNKNOWN_ARCHIVE)
    assert fixed == (0, 24, 34, 35)


# --- the first record -----------------------------------------------------------------------


def test_nothing_counts_before_the_clusters_settings() -> None:
    world = World(settings=None)
    assert world.tell(world.session(A, SessionOp.OPEN)) is Verdict.NO_CLUSTER
    assert world.tell(world.move(Move.ASSIGN, A, broker=A)) is Verdict.NO_CLUSTER
    assert world.tell(world.tenant("acme", PolicyOp.CREATE)) is Verdict.NO_CLUSTER
    assert world.tell(world.namespace("public/x", PolicyOp.CREATE)) is Verdict.NO_CLUSTER
    assert world.tell(SETTINGS) is Verdict.ACCEPTED


def test_settings_are_written_once() -> None:
    world = World()
    assert world.tell(SETTINGS) is Verdict.REPEATED
    other = replace(SETTINGS, proposal_id="other", lease_ms=5000)
    assert world.tell(other) is Verdict.CLUSTER_EXISTS


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"heartbeat_ms": 0}, Verdict.INVALID_VALUE),
        ({"heartbeat_ms": 1}, Verdict.ACCEPTED),
        ({"heartbeat_ms": 3999}, Verdict.ACCEPTED),
        ({"heartbeat_ms": 4000}, Verdict.INVALID_VALUE),
        ({"lease_ms": 5500}, Verdict.INVALID_VALUE),
        ({"lease_ms": 4000, "liveness_timeout_ms": 4400}, Verdict.ACCEPTED),
        ({"liveness_timeout_ms": 4000}, Verdict.INVALID_VALUE),
        ({"default_bundles": 0}, Verdict.INVALID_VALUE),
        ({"default_bundles": BUNDLES_MAX}, Verdict.ACCEPTED),
        ({"default_bundles": BUNDLES_MAX + 1}, Verdict.INVALID_VALUE),
        ({"version": 2}, Verdict.VERSION_GAP),
    ],
)
def test_settings_that_leave_no_margin_are_refused(
    change: dict[str, int], verdict: Verdict
) -> None:
    assert World(settings=None).tell(replace(SETTINGS, **change)) is verdict


def test_an_unreadable_entry_changes_nothing_but_the_offset(world: World) -> None:
    before = world.replica.digest
    assert world.tell(None) is Verdict.UNREADABLE
    assert world.replica.digest == before
    assert world.replica.next_offset == len(world.log)


# --- versions -------------------------------------------------------------------------------


def test_the_first_valid_proposal_wins_and_the_others_are_stale() -> None:
    world = World(A, B)
    first, second = (world.move(Move.ASSIGN, x, broker=x) for x in (A, B))
    assert world.tell(first) is Verdict.ACCEPTED
    assert world.tell(second) is Verdict.STALE_VERSION
    assert world.tell(first) is Verdict.REPEATED
    assert world.unit().broker == A


def test_a_unit_of_no_namespace_is_unknown(world: World) -> None:
    for name in ("public/default/0x00000000_0x00000001", "nonsense", "session:a:8080", ""):
        assert world.tell(world.move(Move.ASSIGN, A, name, broker=A)) is Verdict.UNKNOWN_UNIT


def test_a_late_proposal_for_an_earlier_unit_of_the_same_name_never_fits(world: World) -> None:
    late = world.move(Move.ASSIGN, A, broker=A)
    world.must(world.namespace(FIRST, PolicyOp.DELETE))
    assert world.tell(late) is Verdict.UNKNOWN_UNIT
    world.must(world.namespace(FIRST, PolicyOp.CREATE))
    assert world.unit().version > late.version
    assert world.tell(late) is Verdict.STALE_VERSION


@pytest.mark.parametrize("session", [0, 2, 7])
def test_an_actor_must_name_its_open_session(world: World, session: int) -> None:
    assert world.tell(world.move(Move.ASSIGN, A, broker=A, session=session)) is Verdict.SESSION_OVER


def test_a_proposal_from_before_a_lapse_is_void_after_it(world: World) -> None:
    late = world.move(Move.ASSIGN, A, broker=A)
    world.must(world.session(A, SessionOp.OPEN))
    assert world.tell(late) is Verdict.SESSION_OVER


# --- sessions -------------------------------------------------------------------------------


def test_a_session_is_opened_by_its_own_broker_which_closes_it_once() -> None:
    world = World(A, B)
    assert world.tell(world.session(C, SessionOp.OPEN, by=A)) is Verdict.NOT_OWNER
    assert world.tell(world.session(A, SessionOp.CLOSE, by=B)) is Verdict.NOT_OWNER
    assert world.tell(world.session(A, SessionOp.CLOSE, session=7)) is Verdict.SESSION_OVER
    assert world.tell(world.session(A, SessionOp.CLOSE)) is Verdict.ACCEPTED
    assert world.tell(world.session(A, SessionOp.CLOSE)) is Verdict.ILLEGAL_MOVE
    assert world.tell(world.session(C, SessionOp.CLOSE)) is Verdict.ILLEGAL_MOVE


def test_a_session_is_expired_by_the_leader_or_by_anyone_if_it_is_the_leaders() -> None:
    world = World(A, B, C)
    assert world.tell(world.session(B, SessionOp.EXPIRE, by=C)) is Verdict.NOT_LEADER
    world.elect(A)
    assert world.tell(world.session(B, SessionOp.EXPIRE, by=C)) is Verdict.NOT_LEADER
    for broker in (A, B):
        assert world.tell(world.session(broker, SessionOp.EXPIRE, A, epoch=5)) is Verdict.NOT_LEADER
    assert world.tell(world.session(B, SessionOp.EXPIRE, by=A)) is Verdict.ACCEPTED
    assert world.tell(world.session(A, SessionOp.EXPIRE, by=B)) is Verdict.SESSION_OVER
    assert world.tell(world.session(A, SessionOp.EXPIRE, by=C)) is Verdict.ACCEPTED


def test_a_session_that_is_told_of_twice_is_opened_once(world: World) -> None:
    record = world.session(A, SessionOp.OPEN)
    world.must(record)
    assert world.tell(record) is Verdict.REPEATED
    again = world.session(A, SessionOp.OPEN, proposal_id=record.proposal_id)
    assert world.tell(again) is Verdict.REPEATED


# --- tenants and namespaces -----------------------------------------------------------------


def test_a_tenant_lives_from_creation_to_deletion(world: World) -> None:
    assert world.tell(world.tenant("acme", PolicyOp.UPDATE)) is Verdict.UNKNOWN_TENANT
    assert world.tell(world.tenant("acme", PolicyOp.DELETE)) is Verdict.UNKNOWN_TENANT
    made = world.tenant("acme", PolicyOp.CREATE, admin_roles=("root",))
    assert world.tell(replace(made, version=2)) is Verdict.VERSION_GAP
    assert world.tell(made) is Verdict.ACCEPTED
    assert world.tell(made) is Verdict.REPEATED
    assert world.tell(world.tenant("acme", PolicyOp.CREATE)) is Verdict.STALE_VERSION
    assert world.tell(world.tenant("acme", PolicyOp.UPDATE, version=1)) is Verdict.STALE_VERSION
    assert world.tell(world.tenant("acme", PolicyOp.UPDATE)) is Verdict.ACCEPTED
    world.must(world.namespace("acme/orders", PolicyOp.CREATE))
    assert world.tell(world.tenant("acme", PolicyOp.DELETE)) is Verdict.TENANT_BUSY
    world.must(world.namespace("acme/orders", PolicyOp.DELETE))
    assert world.tell(world.tenant("acme", PolicyOp.DELETE)) is Verdict.ACCEPTED
    assert world.replica.tenant("acme") is None


def test_a_namespace_is_made_once_within_a_tenant_that_is_there(world: World) -> None:
    home = "public/orders"
    assert world.tell(world.namespace("acme/x", PolicyOp.CREATE)) is Verdict.UNKNOWN_TENANT
    assert world.tell(world.namespace(home, PolicyOp.DELETE)) is Verdict.UNKNOWN_NAMESPACE
    made = world.namespace(home, PolicyOp.CREATE)
    world.must(made)
    assert world.tell(made) is Verdict.REPEATED
    assert world.tell(world.namespace(home, PolicyOp.CREATE)) is Verdict.STALE_VERSION


def test_a_namespace_needs_a_number_of_bundles_that_fits(world: World) -> None:
    for bundles in (0, -1, BUNDLES_MAX + 1):
        record = world.namespace("public/x", PolicyOp.CREATE, bundles=bundles)
        assert world.tell(record) is Verdict.INVALID_VALUE, bundles
    world.must(world.namespace("public/x", PolicyOp.CREATE, bundles=BUNDLES_MAX))


def test_sessions_tenants_and_namespaces_need_proper_names(world: World) -> None:
    brokers = ("", "b", "b:", "b:123456", "b:70000", "b c:1", "b/c:1")
    tenants = ("", "a b", "a/b", "a:b", "x" * 256)
    namespaces = ("public", "public/", "public/a b", "public/a/b")
    bad: tuple[Record, ...] = (
        *(world.session(name, SessionOp.OPEN) for name in brokers),
        *(world.tenant(name, PolicyOp.CREATE) for name in tenants),
        *(world.namespace(name, PolicyOp.CREATE) for name in namespaces),
    )
    for record in bad:
        assert world.tell(record) is Verdict.INVALID_VALUE, record


def test_a_namespace_in_use_is_not_deleted() -> None:
    world = World(A, B)
    for what, to in ((Move.ASSIGN, A), (Move.OWN, ""), (Move.RELEASE, "")):
        world.must(world.move(what, A, broker=to))
        assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.NAMESPACE_BUSY
    world.must(world.move(Move.FREE, A))
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.ACCEPTED


def test_a_namespace_is_in_use_while_an_overridden_owner_may_not_know_it() -> None:
    world = World(A, B, C)
    world.elect(A)
    world.owned(B)
    world.overridden(B, by=A, target=C)
    world.expire(C, by=A)
    world.must(world.move(Move.DISCARD, A))
    assert world.unit().state is UnitState.FREE
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.NAMESPACE_BUSY
    world.expire(B, by=A)
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.ACCEPTED


# --- precedence -----------------------------------------------------------------------------


def test_where_several_reasons_apply_the_first_one_is_given(world: World) -> None:
    nowhere = world.namespace("acme/a b", PolicyOp.CREATE, by=B, bundles=0)
    assert world.tell(nowhere) is Verdict.UNKNOWN_TENANT
    assert world.tell(world.tenant("a b", PolicyOp.CREATE, by=B)) is Verdict.SESSION_OVER
    assert world.tell(world.move(Move.OWN, B, version=0)) is Verdict.STALE_VERSION
    assert world.tell(world.move(Move.OWN, B)) is Verdict.ILLEGAL_MOVE
    assert world.tell(world.session(A, SessionOp.CLOSE, by=B)) is Verdict.SESSION_OVER
    assert world.tell(world.move(Move.RELEASE, A, LEADERSHIP, version=9)) is Verdict.VERSION_GAP


def test_what_is_no_record_is_a_fault(world: World) -> None:
    with pytest.raises(TypeError, match="str is not a record"):
        evolve(world.replica, "record", 0, 0)  # type: ignore[arg-type]
