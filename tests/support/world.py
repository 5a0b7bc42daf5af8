"""A log and its fold in a few words: sessions, leadership and units for tests of rules."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.segment import SegmentInfo, parents_of
from anabranch.core.entities.subscription import Subscription, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.fold.replica import MemoryReplica
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
from anabranch.core.log.state import leader_of
from anabranch.core.log.verdicts import Verdict
from support.there import there

A, B, C = "a:8080", "b:8080", "c:8080"
FIRST = "public/default"
WHOLE = "0x00000000_0xffffffff"
UNIT = f"{FIRST}/{WHOLE}"  # the only bundle of a cluster that starts with one
TOPIC = f"{FIRST}/orders"  # falls into UNIT, as every topic does
HALVES = ("0x00000000_0x7fffffff", "0x7fffffff_0xffffffff")

_Change = TypeVar("_Change")


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


class Versioned(Protocol):
    """What the log makes versions of."""

    @property
    def version(self) -> int: ...


def successor(
    kind: type[_Change], before: Versioned | None, actor: Actor, new_id: str, /, **fields: Any
) -> _Change:
    """The record by which somebody makes the next version of what was there before."""
    wanted = {"proposal_id": new_id, "version": before.version + 1 if before else 1}
    return kind(**{**wanted, "actor": actor.broker, "session": actor.session, **fields})


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
        return there(self.replica.unit(name), name)

    def scalable(self, name: str = TOPIC) -> ScalableTopic:
        return there(self.replica.topic(name), name)

    def subscribed(self, name: str = "sub", on: str = TOPIC) -> Subscription:
        return there(self.replica.subscription(on, name), f"{on}/{name}")

    def actor(self, broker: str) -> Actor:
        session = self.replica.session(broker)
        leader, epoch = leader_of(self.replica)
        number = session.version if session is not None and session.open else 0
        return Actor(broker, number, epoch if leader == broker else 0)

    # --- records ------------------------------------------------------------------------

    def session(self, broker: str, op: SessionOp, by: str = "", **fields: Any) -> SessionChange:
        before, epoch = self.replica.session(broker), self.actor(by or broker).epoch
        wanted = {"broker": broker, "op": op, "epoch": epoch}
        wanted |= {"session": 0} if op is SessionOp.OPEN else {}
        return self._next(SessionChange, before, by or broker, wanted | fields)

    def move(self, what: Move, by: str, unit: str = UNIT, **fields: Any) -> UnitMove:
        wanted = {"unit": unit, "move": what, "epoch": self.actor(by).epoch}
        return self._next(UnitMove, self.replica.unit(unit), by, wanted | fields)

    def tenant(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> TenantChange:
        wanted = {"tenant": name, "op": op}
        return self._next(TenantChange, self.replica.tenant(name), by, wanted | fields)

    def archive(self, name: str, op: ArchiveOp) -> ArchiveChange:
        """What would be accepted, unless a registered one is registered or another one retired."""
        known = self.replica.archive(name)
        version = known.version + 1 if known and op is ArchiveOp.RETIRE else 1
        return ArchiveChange(self.new_id(), name, op, version, "archive")

    def namespace(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> NamespaceChange:
        wanted = {"namespace": name, "op": op, "bundles": 1 if op is PolicyOp.CREATE else 0}
        return self._next(NamespaceChange, self.replica.namespace(name), by, wanted | fields)

    def placement(
        self, kind: PolicyKind, name: str, op: PolicyOp, by: str = A, **fields: Any
    ) -> PlacementPolicyChange:
        before, wanted = self.replica.placement(kind, name), {"kind": kind, "name": name, "op": op}
        return self._next(PlacementPolicyChange, before, by, wanted | fields)

    def setting(self, name: str, op: PolicyOp, by: str = A, **fields: Any) -> SettingChange:
        wanted = {"name": name, "op": op}
        return self._next(SettingChange, self.replica.override(name), by, wanted | fields)

    def permission(
        self, scope: str, role: str, op: PolicyOp, by: str = A, **fields: Any
    ) -> PermissionChange:
        before, wanted = self.replica.permission(scope, role), {"scope": scope, "role": role}
        return self._next(PermissionChange, before, by, {**wanted, "op": op, **fields})

    def topic(self, move: TopicMove, by: str = A, name: str = TOPIC, **fields: Any) -> TopicChange:
        wanted = {"topic": name, "move": move}
        return self._next(TopicChange, self.replica.topic(name), by, wanted | fields)

    def subscription(
        self, op: SubscriptionOp, name: str = "sub", by: str = A, on: str = TOPIC, **fields: Any
    ) -> SubscriptionChange:
        topic, before = self.replica.topic(on), self.replica.subscription(on, name)
        wanted = {"topic": on, "incarnation": topic.incarnation if topic else 0}
        wanted |= {"subscription": name, "op": op}
        return self._next(SubscriptionChange, before, by, wanted | fields)

    def _next(
        self, kind: type[_Change], before: Versioned | None, by: str, fields: dict[str, Any]
    ) -> _Change:
        return successor(kind, before, self.actor(by), self.new_id(), **fields)

    def begin(
        self,
        operation: Operation,
        children: tuple[SegmentInfo, ...],
        by: str = A,
        name: str = TOPIC,
        **fields: Any,
    ) -> TopicChange:
        """BEGIN of an operation whose children a layout has made: they name their parents."""
        wanted = {"parents": parents_of(children), "segments": children, "operation": operation}
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
        self.must(self.topic(TopicMove.CREATE, by, name, segments=initial_segments(segments)))
        self.must(self.topic(TopicMove.OPEN, by, name))

    def committed(
        self,
        operation: Operation,
        children: tuple[SegmentInfo, ...],
        by: str = A,
        end_offsets: tuple[int, ...] | None = None,
    ) -> None:
        """From STABLE to STABLE through all steps of an operation; the ends are 0 by default."""
        self.must(self.begin(operation, children, by))
        self.must(self.topic(TopicMove.SEALING, by))
        topic = self.scalable()
        ends = end_offsets
        if ends is None:
            ends = (0,) * sum(topic.layout.segment(each).buckets for each in topic.parents)
        self.must(self.topic(TopicMove.COMMIT, by, end_offsets=ends))
