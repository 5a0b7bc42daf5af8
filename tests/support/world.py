"""A log and its fold in a few words: sessions, leadership and units for tests of rules."""

from __future__ import annotations

from typing import Any

from anabranch.core.archives.archive import ArchiveOp
from anabranch.core.bundles.propose import Actor
from anabranch.core.bundles.unit import LEADERSHIP, Move, Unit
from anabranch.core.log.outcome import Folded, Outcome
from anabranch.core.log.records import (
    ArchiveChange,
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.log.state import leader_of
from anabranch.core.log.verdicts import Verdict
from anabranch.core.policies.policy import PolicyKind
from anabranch.core.subscriptions.subscription import Subscription, SubscriptionOp
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import Operation, ScalableTopic, TopicMove

A, B, C = "a:8080", "b:8080", "c:8080"
FIRST = "public/default"
WHOLE = "0x00000000_0xffffffff"
UNIT = f"{FIRST}/{WHOLE}"  # the only bundle of a cluster that starts with one
TOPIC = f"{FIRST}/orders"  # falls into UNIT, as every topic does
HALVES = ("0x00000000_0x7fffffff", "0x7fffffff_0xffffffff")

SETTINGS = ClusterSettings(
    proposal_id="settings",
    cluster="test",
    version=1,
    actor=A,
    heartbeat_ms=500,
    lease_ms=4000,
    liveness_timeout_ms=6000,
    default_bundles=1,
)


class World:
    """A replica and the log it was folded from; every record a second later than the last."""

    def __init__(self, *brokers: str, settings: ClusterSettings | None = SETTINGS) -> None:
        self.replica = MemoryReplica()
        self.log: list[tuple[Record | None, int]] = []
        self._ids = 0
        if settings is not None:
            self.must(settings)
        for broker in brokers:
            self.must(self.session(broker, SessionOp.OPEN))

    def new_id(self) -> str:
        self._ids += 1
        return f"p{self._ids}"

    @property
    def now_ms(self) -> int:
        return 1_000 * len(self.log)

    def fold(self, record: Record | None) -> Folded:
        stamp = self.now_ms
        folded = self.replica.read(record, len(self.log), stamp)
        self.log.append((record, stamp))
        return folded

    def tell(self, record: Record | None) -> Verdict:
        return self.fold(record).outcome.verdict

    def must(self, record: Record) -> Outcome:
        outcome = self.fold(record).outcome
        if outcome.verdict is not Verdict.ACCEPTED:
            raise AssertionError(f"{outcome.verdict.name}: {record}")
        return outcome

    # --- state --------------------------------------------------------------------------

    def unit(self, name: str = UNIT) -> Unit:
        unit = self.replica.unit(name)
        if unit is None:
            raise AssertionError(f"there is no unit {name}")
        return unit

    def scalable(self, name: str = TOPIC) -> ScalableTopic:
        topic = self.replica.topic(name)
        if topic is None:
            raise AssertionError(f"there is no topic {name}")
        return topic

    def subscribed(self, name: str = "sub", on: str = TOPIC) -> Subscription:
        subscription = self.replica.subscription(on, name)
        if subscription is None:
            raise AssertionError(f"there is no subscription {name} of {on}")
        return subscription

    def actor(self, broker: str) -> Actor:
        session = self.replica.session(broker)
        leader, epoch = leader_of(self.replica)
        number = session.version if session is not None and session.open else 0
        return Actor(broker, number, epoch if leader == broker else 0)

    # --- records ------------------------------------------------------------------------

    def session(self, broker: str, op: SessionOp, by: str = "", **fields: Any) -> SessionChange:
        before = self.replica.session(broker)
        actor = self.actor(by or broker)
        wanted = {
            "proposal_id": self.new_id(),
            "broker": broker,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": 0 if op is SessionOp.OPEN else actor.session,
            "epoch": actor.epoch,
        }
        return SessionChange(**{**wanted, **fields})

    def move(self, what: Move, by: str, unit: str = UNIT, **fields: Any) -> UnitMove:
        before, actor = self.replica.unit(unit), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "unit": unit,
            "move": what,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
            "epoch": actor.epoch,
        }
        return UnitMove(**{**wanted, **fields})

    def tenant(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> TenantChange:
        before, actor = self.replica.tenant(name), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "tenant": name,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return TenantChange(**{**wanted, **fields})

    def archive(self, name: str, op: ArchiveOp) -> ArchiveChange:
        """What would be accepted, unless a registered one is registered or another one retired."""
        known = self.replica.archive(name)
        version = known.version + 1 if known and op is ArchiveOp.RETIRE else 1
        return ArchiveChange(self.new_id(), name, op, version, "archive")

    def namespace(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> NamespaceChange:
        before, actor = self.replica.namespace(name), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "namespace": name,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
            "bundles": 1 if op is PolicyOp.CREATE else 0,
        }
        return NamespaceChange(**{**wanted, **fields})

    def placement(
        self, kind: PolicyKind, name: str, op: PolicyOp, by: str = A, **fields: Any
    ) -> PlacementPolicyChange:
        before, actor = self.replica.placement(kind, name), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "kind": kind,
            "name": name,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return PlacementPolicyChange(**{**wanted, **fields})

    def setting(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> SettingChange:
        before, actor = self.replica.override(name), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "name": name,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return SettingChange(**{**wanted, **fields})

    def permission(
        self, scope: str, role: str, op: PolicyOp, by: str = A, **fields: Any
    ) -> PermissionChange:
        before, actor = self.replica.permission(scope, role), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "scope": scope,
            "role": role,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return PermissionChange(**{**wanted, **fields})

    def topic(self, move: TopicMove, by: str = A, name: str = TOPIC, **fields: Any) -> TopicChange:
        before, actor = self.replica.topic(name), self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "topic": name,
            "move": move,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return TopicChange(**{**wanted, **fields})

    def subscription(
        self, op: SubscriptionOp, name: str = "sub", by: str = A, on: str = TOPIC, **fields: Any
    ) -> SubscriptionChange:
        topic, before = self.replica.topic(on), self.replica.subscription(on, name)
        actor = self.actor(by)
        wanted = {
            "proposal_id": self.new_id(),
            "topic": on,
            "incarnation": topic.incarnation if topic else 0,
            "subscription": name,
            "op": op,
            "version": (before.version if before else 0) + 1,
            "actor": actor.broker,
            "session": actor.session,
        }
        return SubscriptionChange(**{**wanted, **fields})

    def begin(
        self,
        operation: Operation,
        children: tuple[SegmentInfo, ...],
        by: str = A,
        name: str = TOPIC,
        **fields: Any,
    ) -> TopicChange:
        """BEGIN of an operation whose children a layout has made: they name their parents."""
        wanted = {"parents": children[0].parent_ids, "segments": children, "operation": operation}
        return self.topic(TopicMove.BEGIN, by, name, **{**wanted, **fields})

    # --- situations ---------------------------------------------------------------------

    def elect(self, broker: str) -> None:
        self.must(self.move(Move.ELECT, broker, LEADERSHIP))

    def owned(self, broker: str, unit: str = UNIT) -> None:
        """From FREE to OWNED by this broker."""
        self.must(self.move(Move.ASSIGN, broker, unit, broker=broker))
        self.must(self.move(Move.OWN, broker, unit))

    def expire(self, broker: str, by: str) -> None:
        self.must(self.session(broker, SessionOp.EXPIRE, by))

    def grants(self, scope: str, role: str, *actions: str) -> None:
        """All that the role may do there from now on; nothing, if nothing is named."""
        known = self.replica.permission(scope, role) is not None
        op = PolicyOp.DELETE if not actions else PolicyOp.UPDATE if known else PolicyOp.CREATE
        self.must(self.permission(scope, role, op, actions=actions))

    def authorizing(self, broker: str, *superusers: str) -> None:
        """From now on the broker must ask who may do what."""
        self.must(self.session(broker, SessionOp.OPEN, authorizes=True, superusers=superusers))

    def overridden(self, holder: str, by: str, target: str) -> None:
        """From OWNED by `holder`, which is then slow to release, to ASSIGNING to `target`."""
        self.must(self.move(Move.RELEASE, by))
        self.must(self.move(Move.OVERRIDE, by, broker=target))
        if self.unit().source != holder:
            raise AssertionError(f"the override did not keep {holder} in mind: {self.unit()}")

    def opened(self, segments: int = 2, by: str = A, name: str = TOPIC) -> None:
        """From nothing to STABLE; `by` must hold the bundle of the topic's name."""
        parts = initial_segments(segments)
        self.must(self.topic(TopicMove.CREATE, by, name, segments=parts))
        self.must(self.topic(TopicMove.OPEN, by, name))

    def committed(
        self,
        operation: Operation,
        children: tuple[SegmentInfo, ...],
        by: str = A,
        name: str = TOPIC,
        end_offsets: tuple[int, ...] | None = None,
    ) -> None:
        """From STABLE to STABLE through all steps of an operation; the ends are 0 by default."""
        self.must(self.begin(operation, children, by, name))
        self.must(self.topic(TopicMove.SEALING, by, name))
        topic = self.scalable(name)
        ends = end_offsets
        if ends is None:
            ends = (0,) * sum(topic.layout.segment(each).buckets for each in topic.parents)
        self.must(self.topic(TopicMove.COMMIT, by, name, end_offsets=ends))
