"""What is granted: what a record may say of it, what becomes of it, and what it lets others do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.permission import PERMISSIONS_MAX, Permission
from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.log.records import PolicyOp, Record, SessionOp
from anabranch.core.log.verdicts import Verdict
from support.there import there
from support.world import FIRST, TOPIC, UNIT, A, B, World

OTHER = "acme/shop"
WORDS = tuple(sorted("a" * count for count in range(1, 33)))


def with_topic(*superusers: str) -> World:
    """A holds the only bundle of FIRST, and controls TOPIC; with superusers, it asks who may."""
    world = World(A, B)
    world.elect(A)
    world.owned(A)
    world.opened()
    world.must(world.tenant("acme", PolicyOp.CREATE, admin_roles=("boss",)))
    if superusers:
        world.authorizing(A, *superusers)
    return world


def asked(role: str, record: Record, by: str = "") -> Any:
    return msgspec.structs.replace(record, principal=role, proxied_by=by)


# --- the entity -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return with_topic("root")


def test_a_permission_is_what_its_last_record_says() -> None:
    world = World(A, B)
    place = len(world.log)
    record = world.permission(FIRST, "ada", PolicyOp.CREATE, actions=("consume",))
    made = Permission(place + 1, ("consume",), 1_000 * place, record.proposal_id)
    assert world.must(record).changes == ((f"permission:{FIRST}:ada", made),)
    assert world.tell(record) is Verdict.REPEATED
    world.must(world.permission(FIRST, "ada", PolicyOp.UPDATE, B, actions=("produce", "view")))
    after = there(world.replica.permission(FIRST, "ada"))
    assert (after.version, after.actions) == (place + 2, ("produce", "view"))
    revoke = world.permission(FIRST, "ada", PolicyOp.DELETE)
    assert world.must(revoke).changes == ((f"permission:{FIRST}:ada", None),)
    assert world.tell(revoke) is Verdict.UNKNOWN_PERMISSION


def test_roles_and_scopes_do_not_get_into_each_other_s_way() -> None:
    world = with_topic()
    world.grants(FIRST, "ada", "consume")
    world.grants(FIRST, "ada:bob", "produce")
    world.grants(TOPIC, "ada", "scale")
    world.grants(FIRST, "a/b", "view")
    found = {role: each.actions for role, each in world.replica.permissions(FIRST)}
    assert found == {"a/b": ("view",), "ada": ("consume",), "ada:bob": ("produce",)}
    assert [role for role, _ in world.replica.permissions(TOPIC)] == ["ada"]
    world.grants(FIRST, "ada")
    assert [role for role, _ in world.replica.permissions(FIRST)] == ["a/b", "ada:bob"]
    assert world.replica.permission(TOPIC, "ada") is not None


@pytest.mark.parametrize(
    ("scope", "role", "fields", "verdict"),
    [
        (FIRST, "", {"actions": ("view",)}, Verdict.INVALID_VALUE),
        (FIRST, "a\nb", {"actions": ("view",)}, Verdict.INVALID_VALUE),
        (FIRST, "a" * 256, {"actions": ("view",)}, Verdict.INVALID_VALUE),
        (FIRST, "ada", {}, Verdict.INVALID_VALUE),
        (FIRST, "ada", {"actions": ("view", "scale")}, Verdict.INVALID_VALUE),
        (FIRST, "ada", {"actions": ("view", "view")}, Verdict.INVALID_VALUE),
        (FIRST, "ada", {"actions": ("a" * 33,)}, Verdict.INVALID_VALUE),
        (FIRST, "ada", {"actions": ("view",), "session": 9}, Verdict.SESSION_OVER),
        (f"{FIRST}/none", "ada", {"actions": ("view",)}, Verdict.UNKNOWN_TOPIC),
        ("acme/none", "ada", {"actions": ("view",)}, Verdict.UNKNOWN_NAMESPACE),
        ("acme", "ada", {"actions": ("view",)}, Verdict.UNKNOWN_NAMESPACE),
        (f"{FIRST}:x", "ada", {"actions": ("view",)}, Verdict.UNKNOWN_NAMESPACE),
        # What only a later release can grant is kept, for nodes of that release.
        (FIRST, "ada", {"actions": ("hover",)}, Verdict.ACCEPTED),
        (FIRST, "a" * 255, {"actions": WORDS}, Verdict.ACCEPTED),
        (FIRST, "ada", {"actions": (*WORDS, "b")}, Verdict.INVALID_VALUE),
    ],
)
def test_what_is_no_grant_is_refused(
    scope: str, role: str, fields: dict[str, Any], verdict: Verdict
) -> None:
    world = with_topic()
    assert world.tell(world.permission(scope, role, PolicyOp.CREATE, **fields)) is verdict


def test_a_revoke_names_no_actions() -> None:
    world = World(A)
    world.grants(FIRST, "ada", "consume")
    some = world.permission(FIRST, "ada", PolicyOp.DELETE, actions=("consume",))
    assert world.tell(some) is Verdict.INVALID_VALUE


def test_one_scope_has_room_for_so_many_roles() -> None:
    world = World(A)
    world.grants(FIRST, "r0", "view")
    made = world.replica.permission(FIRST, "r0")
    others = (f"permission:{FIRST}:r{number}" for number in range(1, PERMISSIONS_MAX))
    world.replica.apply([(key, made) for key in others])
    late = world.permission(FIRST, "late", PolicyOp.CREATE, actions=("view",))
    assert world.tell(late) is Verdict.TOO_MANY_PERMISSIONS
    world.grants(FIRST, "r7", "consume")  # what there is may change


# --- what goes with what it is on -----------------------------------------------------------------


def test_a_topic_takes_its_grants_along_in_the_record_that_removes_it() -> None:
    world = with_topic()
    world.grants(TOPIC, "ada", "consume")
    world.grants(FIRST, "ada", "produce")
    world.must(world.topic(TopicMove.DELETE))
    world.grants(TOPIC, "bob", "view")  # it is there yet
    gone = world.must(world.topic(TopicMove.REMOVE)).changes
    assert {key for key, after in gone if after is None} == {
        f"topic:{TOPIC}",
        f"permission:{TOPIC}:ada",
        f"permission:{TOPIC}:bob",
    }
    world.opened()
    assert list(world.replica.permissions(TOPIC)) == []
    assert world.replica.permission(FIRST, "ada") is not None


def test_a_namespace_takes_its_grants_along_in_the_record_that_deletes_it() -> None:
    world = with_topic()
    world.must(world.namespace(OTHER, PolicyOp.CREATE))
    world.grants(OTHER, "ada", "consume")
    world.grants(FIRST, "ada", "consume")
    gone = dict(world.must(world.namespace(OTHER, PolicyOp.DELETE)).changes)
    assert gone[f"permission:{OTHER}:ada"] is None
    world.must(world.namespace(OTHER, PolicyOp.CREATE))
    assert list(world.replica.permissions(OTHER)) == []
    assert world.replica.permission(FIRST, "ada") is not None


# --- what the fold lets through -------------------------------------------------------------------


def changes(world: World) -> dict[str, Record]:
    """One of each kind that somebody may ask for, all of which the log would take."""
    layout = world.scalable().layout
    return {
        "tenant": world.tenant("other", PolicyOp.CREATE),
        "namespace": world.namespace("public/more", PolicyOp.CREATE),
        "topic": world.topic(TopicMove.CREATE, name=f"{FIRST}/t", segments=initial_segments(1)),
        "delete": world.topic(TopicMove.DELETE),
        "properties": world.topic(TopicMove.UPDATE, properties=("a", "b")),
        "split": world.begin(Operation.SPLIT, layout.split_children(0)),
        "policy": world.topic(TopicMove.POLICY, auto_scale=("enabled", "false")),
        "subscribe": world.subscription(SubscriptionOp.CREATE),
        "grant": world.permission(TOPIC, "eve", PolicyOp.CREATE, actions=("view",)),
        "placement": world.placement(PolicyKind.DOMAIN, "east", PolicyOp.CREATE, brokers=("b1:1",)),
        "setting": world.setting("lookupTimeoutMillis", PolicyOp.CREATE, value="1"),
        "unload": world.move(Move.RELEASE, A),
    }


def let_through(role: str, *granted: str, scope: str = TOPIC) -> set[str]:
    """Which of the changes the log takes when the role asks for them."""
    found = set()
    for name in changes(with_topic("root")):
        world = with_topic("root")
        if granted:
            world.grants(scope, role, *granted)
        verdict = world.tell(asked(role, changes(world)[name]))
        assert verdict in (Verdict.ACCEPTED, Verdict.NOT_PERMITTED), (name, verdict)
        if verdict is Verdict.ACCEPTED:
            found.add(name)
    return found


def test_superusers_of_the_session_and_the_node_itself_may_do_everything() -> None:
    everything = set(changes(with_topic("root")))
    assert let_through("root") == let_through("") == everything


def test_who_was_granted_something_may_do_that_and_nothing_else() -> None:
    assert let_through("eve") == set()
    assert let_through("ada", "produce", "view") == set()
    assert let_through("ada", "consume") == {"subscribe"}
    assert let_through("ada", "scale") == {"split", "policy"}
    assert let_through("ada", "consume", "scale", scope=FIRST) == {"subscribe", "split", "policy"}
    assert let_through("ada", "hover") == set()


def test_a_tenant_s_administrator_may_do_what_is_the_tenant_s() -> None:
    """The tenant `public` has none; so make one that administers it."""
    for name, record in changes(with_topic("root")).items():
        world = with_topic("root")
        world.must(asked("root", world.tenant("public", PolicyOp.UPDATE, admin_roles=("boss",))))
        verdict = world.tell(asked("boss", changes(world)[name]))
        cluster_s = name in ("tenant", "placement", "setting")
        assert verdict is (Verdict.NOT_PERMITTED if cluster_s else Verdict.ACCEPTED), record
        if name == "unload":
            continue
        elsewhere = world.namespace(OTHER, PolicyOp.CREATE)
        assert world.tell(asked("eve", elsewhere)) is Verdict.NOT_PERMITTED
        itself = world.tenant("public", PolicyOp.UPDATE, admin_roles=("boss", "eve"))
        assert world.tell(asked("boss", itself)) is Verdict.NOT_PERMITTED


def test_a_node_that_asks_nobody_is_held_to_nothing_nor_is_a_proxy() -> None:
    world = with_topic()
    for record in (changes(world)["tenant"], changes(world)["split"]):
        world.must(asked("eve", record, "gate"))


def test_what_is_revoked_is_refused_from_the_next_offset_on(world: World) -> None:
    """However early the node has looked: the log decides, not the look."""
    world.grants(TOPIC, "ada", "scale")
    split = asked("ada", world.begin(Operation.SPLIT, world.scalable().layout.split_children(0)))
    world.grants(TOPIC, "ada")
    before = dict(world.replica.entities)
    assert world.tell(split) is Verdict.NOT_PERMITTED
    assert world.replica.entities == before
    world.grants(TOPIC, "ada", "scale")
    world.must(split)


@pytest.mark.parametrize(
    ("ada", "gate", "verdict"),
    [
        ("scale", "scale", Verdict.ACCEPTED),
        ("scale", "consume", Verdict.NOT_PERMITTED),
        ("", "scale", Verdict.NOT_PERMITTED),
    ],
)
def test_what_is_asked_for_by_a_proxy_needs_the_right_of_both(
    world: World, ada: str, gate: str, verdict: Verdict
) -> None:
    for role, action in (("ada", ada), ("gate", gate)):
        if action:
            world.grants(TOPIC, role, action)
    policy = world.topic(TopicMove.POLICY, auto_scale=("enabled", "false"))
    before = dict(world.replica.entities)
    assert world.tell(asked("ada", policy, "gate")) is verdict
    assert (world.replica.entities == before) is (verdict is not Verdict.ACCEPTED)


def test_a_proxy_that_names_nobody_has_asked_for_nothing(world: World) -> None:
    """Who has not said who they are is refused by nodes: so the record is the node's own."""
    for record in (world.tenant("other", PolicyOp.CREATE), world.move(Move.RELEASE, A)):
        world.must(asked("", record, "gate"))


def test_only_what_would_be_accepted_is_refused_for_want_of_a_right(world: World) -> None:
    stale = asked("eve", world.tenant("acme", PolicyOp.CREATE, version=1))
    assert world.tell(stale) is Verdict.STALE_VERSION


def test_who_may_do_everything_is_what_the_session_of_the_proposer_says(world: World) -> None:
    world.authorizing(B, "boss")
    change = world.tenant("t", PolicyOp.CREATE, B)
    assert world.tell(asked("root", change)) is Verdict.NOT_PERMITTED
    world.must(asked("boss", change))
    assert world.tell(asked("boss", world.tenant("u", PolicyOp.CREATE, A))) is Verdict.NOT_PERMITTED
    world.must(world.session(A, SessionOp.CLOSE))
    closed = there(world.replica.session(A))
    assert (closed.authorizes, closed.superusers) == (False, ())


def test_who_has_lost_the_right_to_consume_may_leave_by_any_proxy(world: World) -> None:
    world.grants(TOPIC, "ada", "consume")
    world.must(asked("ada", world.subscription(SubscriptionOp.CREATE)))
    world.must(asked("ada", world.subscription(SubscriptionOp.JOIN, consumer="c", instance=1)))
    world.grants(TOPIC, "ada")
    again = asked("ada", world.subscription(SubscriptionOp.JOIN, consumer="d", instance=2))
    assert world.tell(again) is Verdict.NOT_PERMITTED
    world.must(asked("ada", world.subscription(SubscriptionOp.LEAVE, consumer="c"), "gate"))


def test_the_leadership_is_nobody_s_to_ask_for_but_a_superuser_s(world: World) -> None:
    world.must(world.move(Move.RESIGN, A, LEADERSHIP))
    elect = world.move(Move.ELECT, A, LEADERSHIP)
    assert world.tell(asked("boss", elect)) is Verdict.NOT_PERMITTED
    world.must(asked("root", elect))
    assert world.unit(UNIT).broker == A
