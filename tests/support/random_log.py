"""Random logs: records that would often be accepted, and sometimes anything."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import strategies as st

from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.segment import legacy_segment, parents_of
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.records import PolicyOp, Record, SessionOp
from anabranch.core.log.state import leader_of
from anabranch.core.names import namespace_of, tenant_of
from anabranch.core.ring import split_bundle_name
from anabranch.core.topics.machine import LAYOUTS
from support.topics import random_positions
from support.world import A, B, C, World

# Some begin as others do, or as keys of another kind do.
TENANTS = ("public", "acme", "leadership", "a/b")
NAMESPACES = ("public/default", "public/x", "acme/y", "acme/y-2", "leadership/x", "acme/a b")
TOPICS = ("public/default/t", "public/default/t.b", "acme/y/t", "acme/y-2/t")
BROKERS = (A, B, C, "nobody")
ROLES = ("ada", "ada:b", "root")


def random_record(world: World, rng: random.Random) -> Record | None:
    """Often what would be accepted, sometimes anything; now and then asked for by somebody, or by
    somebody's proxy.
    """
    record = _random_record(world, rng)
    if rng.random() < 0.1 and record is not None and hasattr(record, "principal"):
        by = rng.choice(ROLES) if rng.random() < 0.3 else ""
        return msgspec.structs.replace(record, principal=rng.choice(ROLES), proxied_by=by)
    return record


def _random_record(world: World, rng: random.Random) -> Record | None:
    broker, other = rng.choice((A, B, C)), rng.choice(BROKERS)
    what = rng.random()
    if what < 0.01:
        return None
    if what < 0.02:
        return world.archive(rng.choice(("a", "b", "a b")), rng.choice(list(ArchiveOp)))
    if what < 0.05:
        return random_placement_record(world, rng, broker)
    if rng.random() < 0.05:
        return random_setting_record(world, rng, broker)
    if rng.random() < 0.08:
        return random_permission_record(world, rng, broker)
    if what < 0.15:
        whose = rng.choice((*(broker,) * 9, "nobody"))
        asks = {"authorizes": rng.random() < 0.4, "superusers": ("root",)}
        return world.session(whose, rng.choice(list(SessionOp)), rng.choice((whose, A, B)), **asks)
    if what < 0.2:
        return world.tenant(rng.choice(TENANTS), rng.choice(list(PolicyOp)), broker)
    if what < 0.3:
        bundles = rng.choice((0, 1, 2, 3))
        home, op = rng.choice(NAMESPACES), rng.choice(list(PolicyOp))
        group = rng.choice(("", "", "apart", "no group"))
        own = rng.choice(((), (), (1, -1, -1), (-1, 1, 1), (9,)))
        limit = rng.choice((0, 0, 1))
        return world.namespace(
            home, op, broker, bundles=bundles, anti_affinity=group, limits=own, limit=limit
        )
    if what < 0.6:
        return random_topic_record(world, rng)
    if what < 0.67:
        move = rng.choice((Move.ELECT, Move.ELECT, Move.SUCCEED, Move.RESIGN))
        return world.move(move, broker, LEADERSHIP)
    units = [name for name, e in world.replica.entities.items() if isinstance(e, Unit)]
    if what < 0.7 or not units:
        return world.log[rng.randrange(len(world.log))][0]  # delivered again
    return random_move(world, rng, rng.choice(units), other)


def random_placement_record(world: World, rng: random.Random, broker: str) -> Record:
    """Often one that is well formed; the domains get into each other's way."""
    kind = rng.choice((*PolicyKind, PolicyKind.DOMAIN, PolicyKind.DOMAIN))
    fields: dict[str, Any] = {}
    if kind is PolicyKind.ISOLATION:
        patterns = rng.choice(((), ("public/.*",), ("public/.*", "acme/[a-z]+"), ("",)))
        fields = {"namespaces": patterns, "primary": ("a.*",), "min_limit": rng.choice((-1, 0, 1))}
    elif kind is PolicyKind.DOMAIN:
        fields = {"brokers": rng.choice(((), (A,), (A, B), (A, B), (B, A)))}
    name = rng.choice(("1", "2", "2", "a b"))
    known = world.replica.placement(kind, name) is not None
    likely = (PolicyOp.UPDATE, PolicyOp.UPDATE, PolicyOp.DELETE) if known else (PolicyOp.CREATE,)
    op = rng.choice((*likely * 2, *PolicyOp))
    return world.placement(kind, name, op, broker, **(fields if rng.random() < 0.9 else {}))


def random_setting_record(world: World, rng: random.Random, broker: str) -> Record:
    """Mostly one that is accepted."""
    name = rng.choice(("retries", "retries", "wait", "not one"))
    known = world.replica.override(name) is not None
    op = rng.choice((PolicyOp.UPDATE, PolicyOp.UPDATE, PolicyOp.DELETE) if known else [*PolicyOp])
    value = "" if op is PolicyOp.DELETE else rng.choice(("1", "2", "", "a\nb"))
    return world.setting(name, op, broker, value=value)


def random_permission_record(world: World, rng: random.Random, broker: str) -> Record:
    """Mostly one that is accepted, on what is there mostly."""
    scope = rng.choice(
        (NAMESPACES[0], *NAMESPACES, TOPICS[0], TOPICS[0], *TOPICS, "acme", "a/b/c/d")
    )
    role = rng.choice((*ROLES, "urn:bob", " "))
    known = world.replica.permission(scope, role) is not None
    op = rng.choice((PolicyOp.UPDATE, PolicyOp.UPDATE, PolicyOp.DELETE) if known else [*PolicyOp])
    some = rng.choice((("consume",), ("consume", "produce"), ("scale", "view"), ("b", "a"), ()))
    actions = () if op is PolicyOp.DELETE and rng.random() < 0.9 else some
    return world.permission(scope, role, op, broker, actions=actions)


def random_topic_record(world: World, rng: random.Random) -> Record:
    """On a topic or one of its subscriptions, mostly by its controller."""
    name = rng.choice((*TOPICS[:1] * 4, *TOPICS))
    home = namespace_of(name)
    unit, actor = controller_of(world.replica, name)
    if rng.random() < 0.8:  # first what a topic needs
        if world.replica.namespace(home) is None and world.replica.tenant(tenant_of(home)):
            return world.namespace(home, PolicyOp.CREATE, A, bundles=2)
        if not world.actor(actor or A).session:
            return world.session(actor or A, SessionOp.OPEN)
        if unit and not actor:
            return random_move(world, rng, unit, A)
    if rng.random() < 0.07:
        actor = rng.choice((B, C))
    topic = world.replica.topic(name)
    if topic is not None and rng.random() < (0.4 if topic.is_open else 0.05):
        return random_subscription_record(world, rng, topic, name, actor)
    move = TopicMove(rng.choice((*likely_moves(topic), *list(TopicMove)[:: rng.choice((1, 11))])))
    if topic is None and rng.random() < 0.8:
        move = TopicMove.CREATE
    return world.topic(move, actor, name, **topic_fields(rng, topic, move))


def likely_moves(topic: ScalableTopic | None) -> list[TopicMove]:
    """What may be accepted now; what ends all, rarely."""
    if topic is None:
        return [TopicMove.CREATE]
    moves = [TopicMove(move) for (state, move) in LAYOUTS.table if state is topic.state]
    idle = {TopicMove.CLEAR: not topic.garbage, TopicMove.PRUNE: not has_sealed_root(topic)}
    rare = (TopicMove.DELETE, TopicMove.UPDATE, TopicMove.ABORT, TopicMove.LOST)
    return [*moves, *[move for move in moves if not idle.get(move) and move not in rare] * 4]


def has_sealed_root(topic: ScalableTopic) -> bool:
    return any(not part.is_active and not part.parent_ids for part in topic.segments)


def first_layout(rng: random.Random, spoilt: bool) -> dict[str, Any]:
    """Of a topic that is made, or of a Kafka topic that is adopted."""
    if rng.random() < 0.7:
        parts = initial_segments(rng.choice((1, 2, 3)))[spoilt:]
        return {"segments": parts, "limit": rng.choice((0, 0, 1))}
    old = legacy_segment("old", "", rng.choice((1, 3)), rng.choice(("", "murmur2")))
    listed = rng.choice(("public/default=o*", "public/default=o*", "public/other=old", ""))
    return {"segments": (old,), "adoptable": listed}


def topic_fields(
    rng: random.Random, topic: ScalableTopic | None, move: TopicMove
) -> dict[str, Any]:
    """What would be accepted, now and then spoilt."""
    spoilt = rng.random() < 0.1
    if move is TopicMove.CREATE:
        return first_layout(rng, spoilt)
    if topic is None:
        return {}
    layout = topic.layout
    sealed = [part.segment_id for part in topic.segments if not part.is_active]
    match move:
        case TopicMove.BEGIN if len(layout.active) > 1 and rng.random() < 0.4:
            made = layout.merge_children(*[part.segment_id for part in layout.active[:2]])
            operation = Operation.SPLIT if spoilt else Operation.MERGE
            return {"operation": operation, "parents": made[0].parent_ids, "segments": made}
        case TopicMove.BEGIN if rng.random() < 0.2:
            made = layout.prepare_children(rng.choice((1, 2, 3, 4)))
            parents = parents_of(made)[spoilt:]
            fields = {"operation": Operation.PREPARE, "parents": parents, "segments": made}
            return {**fields, "keeps": rng.random() < 0.5}
        case TopicMove.BEGIN if rng.random() < 0.2:
            made = layout.restore_children(rng.choice(layout.active).segment_id)
            parents = made[0].parent_ids
            operation = Operation.REBUCKET if spoilt else Operation.RESTORE
            return {"operation": operation, "parents": parents, "segments": made}
        case TopicMove.BEGIN:
            made = layout.split_children(rng.choice(layout.active).segment_id)
            parents = made[0].parent_ids
            return {"operation": Operation.SPLIT, "parents": parents, "segments": made[spoilt:]}
        case TopicMove.COMMIT:
            count = sum(layout.segment(each).buckets for each in topic.parents) + spoilt
            return {"end_offsets": tuple(rng.randrange(9) for _ in range(count))}
        case TopicMove.PRUNE:
            return {"segment_ids": tuple(sealed[: rng.choice((1, 1, 2))])}
        case TopicMove.LOST if sealed:
            lost = rng.choice(sealed)
            ends = layout.segment(lost).end_offsets
            return {"segment_ids": (lost,), "end_offsets": ends[spoilt:]}
        case TopicMove.CLEAR:
            return {"segment_ids": tuple(p.segment_id for p in topic.garbage) or (9,) * spoilt}
        case TopicMove.UPDATE:
            return {"properties": ("a", str(rng.randrange(9)))[spoilt:]}
        case _:
            return {}


def random_subscription_record(
    world: World, rng: random.Random, topic: ScalableTopic, name: str, actor: str
) -> Record:
    subscription = rng.choice(("s", "t"))
    existing = world.replica.subscription(name, subscription)
    ops = (SubscriptionOp.JOIN, SubscriptionOp.LEAVE, SubscriptionOp.DRAINED)
    op = rng.choice(
        (
            *ops * 4,
            SubscriptionOp.LAPSED,
            *sorted(set(SubscriptionOp) - {*ops, SubscriptionOp.CREATE}),
        )
    )
    if has_sealed_root(topic) and rng.random() < 0.6:
        op = SubscriptionOp.DRAINED
    if existing is None and rng.random() < 0.9:
        op = SubscriptionOp.CREATE
    fields: dict[str, Any] = {}
    if op in (SubscriptionOp.JOIN, SubscriptionOp.LEAVE, SubscriptionOp.LAPSED):
        known = existing.consumers if existing and op is not SubscriptionOp.JOIN else ()
        consumer = fields["consumer"] = rng.choice((*known, *known, "c1", "c2", "c1", "a b"))
        instance = existing.instance_of(consumer) if existing else None
        if op is SubscriptionOp.JOIN or not instance or rng.random() < 0.1:
            instance = rng.choice((1, 2))
        fields["instance"] = instance
    elif op is SubscriptionOp.DRAINED:
        drained = existing.drained if existing else ()
        spoilt = rng.random() < 0.1
        parts = [part for part in topic.segments if spoilt or not part.is_active]
        left = [part.segment_id for part in parts if part.segment_id not in drained]
        left = left[::-1] if spoilt or rng.random() < 0.1 else left  # from the ends of the DAG
        fields["segment_ids"] = tuple(left[: rng.choice((1, 1, 2))])
    elif op is SubscriptionOp.CREATE:
        fields["kind"] = rng.choice(list(SubscriptionKind))
        if rng.random() < 0.1:
            subscription = "a b"
    if op in (SubscriptionOp.CREATE, SubscriptionOp.RESET, SubscriptionOp.POSITIONS):
        fields["positions"] = random_positions(rng, topic)
    kind = fields.get("kind", SubscriptionKind.QUEUE)
    tells_dead_letters = op in (SubscriptionOp.CREATE, SubscriptionOp.DEAD_LETTER)
    if tells_dead_letters and rng.random() < (0.1 if kind is SubscriptionKind.CHECKPOINT else 0.5):
        tries = rng.randrange(11) if kind is SubscriptionKind.QUEUE else rng.choice((0, 0, 5))
        fields |= {"dead_letter": f"{name}-{subscription}-DLQ", "deliveries_max": tries}
    if op in (SubscriptionOp.CREATE, SubscriptionOp.JOIN):
        fields["limit"] = rng.choice((0, 0, 0, 1))
    if rng.random() < 0.05:
        fields["incarnation"] = 0
    return world.subscription(op, subscription, actor, name, **fields)


def random_move(world: World, rng: random.Random, name: str, other: str) -> Record:
    unit = world.unit(name)
    likely = {
        UnitState.FREE: (Move.ASSIGN,),
        UnitState.ASSIGNING: (Move.OWN, Move.OWN, Move.RECLAIM, Move.OVERRIDE),
        UnitState.OWNED: (Move.RELEASE, Move.SPLIT, Move.RECLAIM, Move.DISCARD),
        UnitState.RELEASING: (Move.HAND_OVER, Move.FREE, Move.OVERRIDE, Move.DISCARD),
        UnitState.SPLITTING: (Move.SPLIT_COMMIT, Move.SPLIT_COMMIT, Move.OVERRIDE),
        UnitState.DELETED: (Move.TOMBSTONE,),
    }
    move = rng.choice((*likely.get(unit.state, ()), *likely.get(unit.state, ()), Move.RELEASE))
    leader = leader_of(world.replica)[0]
    by_leader = move in (Move.RECLAIM, Move.DISCARD, Move.OVERRIDE, Move.TOMBSTONE)
    actor = leader if by_leader and leader else unit.source or unit.broker or A
    if rng.random() < 0.1:
        actor = other
    children: tuple[str, ...] = ()
    if move is Move.SPLIT and name != LEADERSHIP:
        whole = split_bundle_name(name)[1]
        cuttable = whole.splittable and rng.random() < 0.9
        children = tuple(str(part) for part in (whole.halves() if cuttable else (whole,)))
    evidence = rng.choice((0, len(world.log)))
    target = rng.choice((other, "")) if move is Move.RELEASE else other
    fields = {"broker": target, "children": children, "evidence": evidence}
    return world.move(move, actor, name, **fields)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world after a random log of some length."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    world = World(A, B)
    for _ in range(draw(st.integers(0, 120))):
        world.tell(random_record(world, rng))
    return world
