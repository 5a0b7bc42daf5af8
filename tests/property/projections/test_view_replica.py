"""The view on RocksDB is the replica in memory, however its log is cut, repeated or interrupted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anabranch.channel.codec import decode_entity
from anabranch.core.bundles.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    NamespaceChange,
    PermissionChange,
    PolicyOp,
    SessionChange,
    SessionOp,
    TenantChange,
    namespace_key,
)
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.ring import RING_END
from anabranch.core.subscriptions.subscription import SubscriptionOp
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.projections.view import View
from support.history import BROKERS, DEFAULT, History
from support.topic_history import create, subscribe, subscription_move, topic_move

NAMESPACES = (DEFAULT, "acme/orders", "acme/orders-2", "leadership/x")
TENANTS = ("public", "acme", "leadership")
STRANGER = "b9:8080"
TOPICS = (f"{DEFAULT}/a", f"{DEFAULT}/a.b", "acme/orders/a", "acme/orders-2/a")
SUBSCRIPTIONS = ("mine", "yours")
SCOPES = (*NAMESPACES, *TOPICS)
ROLES = ("ada", "ada:b")

brokers = st.sampled_from(BROKERS)
namespaces = st.sampled_from(NAMESPACES)
topics = st.sampled_from(TOPICS)
scopes = st.sampled_from(SCOPES)
small = st.integers(0, 11)

NATURAL = {
    UnitState.FREE: Move.ASSIGN,
    UnitState.ASSIGNING: Move.OWN,
    UnitState.OWNED: Move.RELEASE,
    UnitState.SPLITTING: Move.SPLIT_COMMIT,
    UnitState.DELETED: Move.TOMBSTONE,
}


def facts(replica: MemoryReplica | View) -> dict[str, Any]:
    """Everything that a replica can be asked."""
    state: MemoryReplica | View = replica
    names = [*BROKERS, STRANGER]
    ring = [0, 1, RING_END, *range(0, RING_END, RING_END // 13)]
    return {
        "place": (state.next_offset, state.digest, state.horizon),
        "cluster": state.cluster(),
        "leadership": state.unit(LEADERSHIP),
        "sessions": (list(state.sessions()), [state.session(name) for name in names]),
        "tenants": (list(state.tenants()), [state.tenant(name) for name in TENANTS]),
        "namespaces": [list(state.namespaces(name)) for name in TENANTS],
        "namespace": [state.namespace(name) for name in NAMESPACES],
        "bundles": [list(state.bundles(name)) for name in NAMESPACES],
        "units": [state.unit(unit) for name in NAMESPACES for unit, _ in state.bundles(name)],
        "at": [state.bundle_at(name, where) for name in NAMESPACES for where in ring],
        "units_of": [list(state.units_of(name)) for name in names],
        "unit_count": [state.unit_count(name) for name in names],
        "unsettled": list(state.unsettled()),
        "topics": [(list(state.topics(name))) for name in NAMESPACES],
        "states": [list(state.topic_states(name)) for name in NAMESPACES],
        "topic": [state.topic(name) for name in TOPICS],
        "subscriptions": [list(state.subscriptions(name)) for name in TOPICS],
        "permissions": [list(state.permissions(name)) for name in SCOPES],
        "permission": [state.permission(name, role) for name in SCOPES for role in ROLES],
        "subscription": [state.subscription(n, s) for n in TOPICS for s in SUBSCRIPTIONS],
        "restless": list(state.restless_topics()),
    }


def natural_fields(topic: ScalableTopic | None, number: int, cut: bool) -> dict[str, Any]:
    """What a topic's controller might propose next: the move and its fields."""
    if topic is None:
        return {"move": TopicMove.CREATE, "segments": initial_segments(1 + number % 3, 4)}
    active = topic.layout.active
    part = active[number % len(active)]
    match topic.state:
        case TopicState.CREATING:
            return {"move": TopicMove.OPEN}
        case TopicState.PREPARING:
            return {"move": TopicMove.ABORT if cut else TopicMove.SEALING}
        case TopicState.SEALING:
            parents = (topic.layout.segment(each) for each in topic.parents)
            return {
                "move": TopicMove.COMMIT,
                "end_offsets": (number,) * sum(p.buckets for p in parents),
            }
        case TopicState.DELETING:
            return {"move": TopicMove.REMOVE}
    sealed = tuple(p.segment_id for p in topic.segments if not p.is_active and not p.parent_ids)
    if topic.garbage and cut:
        return {"move": TopicMove.CLEAR, "segment_ids": (topic.garbage[0].segment_id,)}
    if sealed and number % 3 == 0:
        return {"move": TopicMove.PRUNE, "segment_ids": sealed}
    if number == 11:
        return {"move": TopicMove.DELETE}
    if cut and len(active) > 1:
        return _begun(
            Operation.MERGE, topic.layout.merge_children(*(p.segment_id for p in active[:2]))
        )
    if number % 2:
        return _begun(
            Operation.REBUCKET,
            topic.layout.rebucket_children(part.segment_id, part.buckets % 4 + 1),
        )
    return _begun(Operation.SPLIT, topic.layout.split_children(part.segment_id))


def _begun(operation: Operation, children: tuple[SegmentInfo, ...]) -> dict[str, Any]:
    parents = children[0].parent_ids
    return {
        "move": TopicMove.BEGIN,
        "operation": operation,
        "parents": parents,
        "segments": children,
    }


class ViewMachine(RuleBasedStateMachine):
    """A log grows; a view and a replica in memory follow it at their own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="view-"))
        self.log = History()
        self.path = self.home / "0"
        self.view = View.open(self.path)
        self.model = MemoryReplica()
        self.changed: dict[str, int] = {}  # key -> offset of its last change since the horizon
        self.told: dict[str, object] = {}
        self.view.subscribe(self._listen)

    def teardown(self) -> None:
        self.view.close()
        shutil.rmtree(self.home)

    def _listen(self, changes: Iterable[tuple[str, object]]) -> None:
        self.told.update(changes)

    @initialize()
    def found(self) -> None:
        self.log.found()
        for tenant in TENANTS[1:]:
            self.log.tenant(tenant)
        for home in NAMESPACES[1:]:
            self.log.namespace(home, 2)
        for name in TOPICS[1:3]:
            create(self.log, name)
            subscribe(self.log, SUBSCRIPTIONS[0], name, ("c-0",))

    # --- the log grows ------------------------------------------------------------------

    @rule(
        home=namespaces,
        number=small,
        other=brokers,
        cut=st.booleans(),
        steps=st.integers(1, 5),
    )
    def natural_moves(self, home: str, number: int, other: str, cut: bool, steps: int) -> None:
        """What a healthy cluster would propose for a unit, step by step."""
        units = [name for name, _ in self.log.state.bundles(home)]
        for _ in range(steps if units else 0):
            name = units[number % len(units)]
            found = self.log.state.unit(name)
            if found is not None:
                self._natural_move(name, found, other, cut)

    def _natural_move(self, name: str, unit: Unit, other: str, cut: bool) -> None:
        if unit.state is UnitState.OWNED and cut:
            self.log.append(self._split(name, unit))
        elif unit.state is UnitState.RELEASING:
            what = Move.HAND_OVER if unit.broker else Move.FREE
            self.log.append(self.log.move(name, what, unit.source))
        else:
            what = NATURAL[unit.state]
            target = other if what in (Move.ASSIGN, Move.RELEASE) else ""
            leads = what is Move.TOMBSTONE
            actor = self._leader() if leads else (unit.broker or other)
            frees = cut and what is Move.RELEASE
            self.log.append(self.log.move(name, what, actor, broker="" if frees else target))

    def _split(self, name: str, unit: Unit) -> Any:
        low, _, high = name.rpartition("/")[2].partition("_")
        middle = f"0x{(int(low, 16) + int(high, 16)) // 2:08x}"
        children = (f"{low}_{middle}", f"{middle}_{high}")
        return self.log.move(name, Move.SPLIT, unit.broker, children=children)

    def _leader(self) -> str:
        unit = self.log.state.unit(LEADERSHIP)
        return unit.broker if unit is not None and unit.broker else BROKERS[0]

    @rule(home=namespaces, number=small, by=brokers, other=brokers, what=st.sampled_from(Move))
    def any_move(self, home: str, number: int, by: str, other: str, what: Move) -> None:
        """Repairs by the leader, and what loses."""
        units = list(self.log.state.bundles(home))
        name = units[number % len(units)][0] if units else f"{home}/0x00000000_0x10000000"
        self.log.append(self.log.move(name, what, by, broker=other))

    @rule(by=brokers, what=st.sampled_from((Move.ELECT, Move.SUCCEED, Move.RESIGN)))
    def leadership(self, by: str, what: Move) -> None:
        self.log.append(self.log.move(LEADERSHIP, what, by))

    @rule(broker=brokers, op=st.sampled_from(SessionOp))
    def session(self, broker: str, op: SessionOp) -> None:
        before = self.log.state.session(broker)
        version = (before.version if before else 0) + 1
        actor = self._leader() if op is SessionOp.EXPIRE else broker
        epoch = self.log.actor(actor).epoch
        own = 0 if op is SessionOp.OPEN else self.log.sessions[actor]
        self.log.append(SessionChange(self.log.new_id(), broker, op, version, actor, own, epoch))
        if op is SessionOp.OPEN:
            self.log.sessions[broker] = version

    @rule(name=st.sampled_from(TENANTS), op=st.sampled_from(PolicyOp), by=brokers)
    def tenant(self, name: str, op: PolicyOp, by: str) -> None:
        before = self.log.state.tenant(name)
        version = (before.version if before else 0) + 1
        self.log.append(
            TenantChange(self.log.new_id(), name, op, version, by, self.log.sessions[by])
        )

    @rule(
        name=namespaces,
        op=st.sampled_from((PolicyOp.CREATE, PolicyOp.DELETE)),
        by=brokers,
        bundles=st.integers(1, 5),
    )
    def namespace(self, name: str, op: PolicyOp, by: str, bundles: int) -> None:
        before = self.log.state.namespace(name)
        version = (before.version if before else 0) + 1
        self.log.append(
            NamespaceChange(
                self.log.new_id(), name, op, version, by, self.log.sessions[by], bundles
            )
        )

    @rule(scope=scopes, role=st.sampled_from(ROLES), op=st.sampled_from(PolicyOp), by=brokers)
    def permission(self, scope: str, role: str, op: PolicyOp, by: str) -> None:
        before = self.log.state.permission(scope, role)
        op = PolicyOp.CREATE if before is None else op
        version, own = (before.version if before else 0) + 1, self.log.sessions[by]
        actions = () if op is PolicyOp.DELETE else ("consume",)
        self.log.append(
            PermissionChange(self.log.new_id(), scope, role, op, version, by, own, actions)
        )

    # --- topics -------------------------------------------------------------------------

    @rule(name=topics, other=brokers, number=small, cut=st.booleans(), steps=st.integers(1, 6))
    def natural_topic_moves(
        self, name: str, other: str, number: int, cut: bool, steps: int
    ) -> None:
        """What a topic's controller would propose, step by step; at first it takes its bundle."""
        if self.log.state.namespace(name.rpartition("/")[0]) is None:
            return
        for _ in range(steps):
            bundle, holder = controller_of(self.log.state, name)
            if holder:
                fields = natural_fields(self.log.state.topic(name), number, cut)
                self.log.append(topic_move(self.log, name=name, by=holder, **fields))
            else:
                self._natural_move(bundle, self.log.unit(bundle), other, cut=False)

    @rule(name=topics, by=brokers, number=small, what=st.sampled_from(TopicMove))
    def any_topic_move(self, name: str, by: str, number: int, what: TopicMove) -> None:
        ids = (number % 5, number % 7)
        self.log.append(topic_move(self.log, what, name, by, segment_ids=ids, end_offsets=ids))

    @rule(
        name=topics,
        subscription=st.sampled_from(SUBSCRIPTIONS),
        number=small,
        op=st.sampled_from(SubscriptionOp),
    )
    def any_subscription_move(
        self, name: str, subscription: str, number: int, op: SubscriptionOp
    ) -> None:
        topic = self.log.state.topic(name)
        if topic is None:
            return
        known = self.log.state.subscription(name, subscription)
        sealed = [p.segment_id for p in topic.segments if not p.is_active]
        news = tuple(each for each in sealed if known is None or each not in known.drained)
        self.log.append(
            subscription_move(
                self.log,
                SubscriptionOp.CREATE if known is None else op,
                subscription,
                name,
                controller_of(self.log.state, name)[1] or BROKERS[0],
                consumer=f"c-{number % 3}",
                instance=number,
                segment_ids=news[: number + 1],
            )
        )

    @rule(key=st.sampled_from((b"x", namespace_key(DEFAULT).encode())))
    def stranger(self, key: bytes) -> None:
        self.log.garbage(key)

    # --- the view follows ---------------------------------------------------------------

    def _model(self, count: int) -> list[Folded]:
        start = self.model.next_offset
        folded = []
        for entry in self.log.entries[start : start + count]:
            fold = self.model.read(entry.record(), entry.offset, entry.timestamp_ms)
            self.changed.update((key, entry.offset) for key, _ in fold.outcome.changes)
            folded.append(fold)
        return folded

    @rule(count=st.integers(0, 40), again=st.integers(0, 5))
    def fold(self, count: int, again: int) -> None:
        """A batch of any size, which may begin with what was delivered before."""
        start = self.model.next_offset
        self.told.clear()
        answers = self.view.read_batch(self.log.entries[max(0, start - again) : start + count])
        expected = self._model(count)
        assert answers == expected
        touched = [key for fold in expected for key, _ in fold.outcome.changes]
        assert self.told == {key: self.model.entities.get(key) for key in touched}

    @rule()
    def reopen(self) -> None:
        self.view.close()
        self.view = View.open(self.path)
        self.view.subscribe(self._listen)

    @rule()
    def crash(self) -> None:
        """What is on the disk while the view is open is all that a killed process leaves."""
        self.path = self.path.with_name(str(int(self.path.name) + 1))
        shutil.copytree(self.view.path, self.path)
        self.view.close()
        self.view = View.open(self.path)
        self.view.subscribe(self._listen)

    @rule(cut=st.integers(1, 30), stale=st.booleans())
    def load(self, cut: int, stale: bool) -> None:
        """A snapshot of the log's end, in batches; earlier values of a key may still be there."""
        self._model(len(self.log.entries))
        taken = self.log.snapshot()
        rows: list[tuple[bytes, bytes | None]] = [
            (key.encode(), value) for key, value in taken.values.items()
        ]
        if stale:
            some = next(v for v in taken.values.values() if isinstance(decode_entity(v), Unit))
            gone: list[tuple[bytes, bytes | None]] = [
                (f"{DEFAULT}/0x00000000_0x00000001".encode(), some),
                (b"tenant:gone", some),  # whatever it holds: it is gone in the end
            ]
            units = [(key, some) for key, _ in rows if key.count(b"/") == 2 and b":" not in key]
            rows = [*gone, *units, *rows, *((key, None) for key, _ in gone)]
        batches = [rows[at : at + cut] for at in range(0, len(rows), cut)]
        self.view.load_snapshot(batches, lambda: taken.horizon)
        self.model.horizon = taken.horizon.next_offset
        self.changed.clear()

    @rule(back=st.integers(0, 20))
    def horizon(self, back: int) -> None:
        reached = max(0, self.model.next_offset - back)
        self.view.horizon_reached(reached)
        if reached > self.model.horizon:
            self.model.horizon = reached
            self.changed = {key: at for key, at in self.changed.items() if at >= reached}

    # --- and they agree -----------------------------------------------------------------

    @invariant()
    def the_view_is_the_replica(self) -> None:
        assert facts(self.view) == facts(self.model)

    @invariant()
    def the_changed_keys_are_known_with_their_values(self) -> None:
        dirty = self.view.freeze().changes()
        decoded = {key.decode(): value and decode_entity(value) for key, value in dirty}
        assert decoded == {key: self.model.entities.get(key) for key in self.changed}


ViewMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# Each step asks the view everything: half a minute, and many where nine others want the machine.
TestViewMachine = pytest.mark.timeout(1_800)(ViewMachine.TestCase)
