"""Proposals: the newest form of every record that the log can hold.

A proposal changes nothing by itself; `evolve` accepts or rejects it when a node reads it back. Each
carries its own id, by which its author finds it after an append with an unknown outcome. It carries
the version that it would make, and the actor with its session. Type numbers are stored, never
reused.

`principal`: the role that asked the actor for it, "" where the actor acts by itself. `proxied_by`:
the role of the proxy between them, "" for none. Records that nobody can ask for have neither.
`limit`: the allowed number of such entities, by its node's settings; 0: any (`tenants.limits`).
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.entities.archive import ArchiveOp, archive_key
from anabranch.core.entities.override import override_key
from anabranch.core.entities.permission import permission_key
from anabranch.core.entities.placement_policy import PolicyKind, policy_key
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import (
    SegmentPositions,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import Grounds


@unique
class Cause(IntEnum):
    """Why a record was proposed: for people and statistics, never for the fold."""

    UNKNOWN = 0
    LOOKUP = 1
    OPERATOR = 2
    RECONCILE = 3
    SHUTDOWN = 4
    ORPHAN = 5
    STUCK = 6
    CLEAN_UP = 7
    ELECTION = 8
    START_UP = 9
    LEASE_LAPSED = 10
    SILENCE = 11
    BALANCE = 12  # and the rest: why the load balancer moved or split it
    OVERLOADED = 13
    UNDERLOADED = 14
    TOPICS = 15
    SESSIONS = 16
    MSG_RATE = 17
    BANDWIDTH = 18


@unique
class TopicCause(IntEnum):
    """Why a record on a scalable topic was proposed; read as `Cause` is."""

    UNKNOWN = 0
    OPERATOR = 1
    PROTOCOL = 2  # the next step of what is under way
    FAILURE = 3  # Kafka refused, for good, what the next step needs
    CONSUMER = 4  # a consumer came, left, reported or fell silent
    GRACE_OVER = 5  # a consumer stayed away for longer than its grace
    RETENTION = 6  # everybody has read it, and it need not be kept
    CONSUMER_COUNT = 7  # and the rest: auto-scaling, by `autoscale.decisions.Reason`
    MSG_RATE_IN = 8
    BYTES_RATE_IN = 9
    MSG_RATE_OUT = 10
    BYTES_RATE_OUT = 11
    COLD = 12
    AT_MAX_SEGMENTS = 13
    BELOW_SPLIT_RATE_FLOOR = 14


@unique
class SessionOp(IntEnum):
    """The events of a broker's session."""

    OPEN = 0
    CLOSE = 1  # the broker itself closes it, after it gave everything away
    EXPIRE = 2  # the leader expires it, or anyone if the leader fell silent


@unique
class PolicyOp(IntEnum):
    """The operations on an entity that exists or not, such as a tenant or a permission."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


AUTOMATIC: Final = frozenset(Cause(number) for number in range(Cause.BALANCE, len(Cause)))
"""Causes of moves and splits that the load balancer decides on by itself."""


class UnitMove(msgspec.Struct, frozen=True, gc=False, tag=1):
    """One move of one service unit (type 1).

    `broker`: the destination or new owner, where the arrow takes it from the record, else "".
    `epoch`: the leader's epoch for the leader's moves, else 0.
    `evidence`: for OWN after an OVERRIDE, the next offset that the former holder has reported.
    `choice`: the grounds of the choice of `broker`, one at most.
    """

    proposal_id: str
    unit: str
    move: Move
    version: int
    actor: str
    session: int
    broker: str = ""
    epoch: int = 0
    evidence: int = 0
    children: tuple[str, ...] = ()
    cause: Cause = Cause.UNKNOWN
    choice: tuple[Grounds, ...] = ()
    principal: str = ""
    proxied_by: str = ""

    @property
    def key(self) -> str:
        return self.unit


class SessionChange(msgspec.Struct, frozen=True, gc=False, tag=2):
    """A broker's session begins or ends (type 2).

    A lease hangs on a session. After a lease has lapsed, the broker must open another session, and
    read that back, before it acts again (docs/decisions, "Sessions"). `evidence_ms`: for EXPIRE,
    the log's timestamp of the last heartbeat that was seen. `authorizes`: for OPEN, whether the
    node checks the rights of callers. `superusers`: the superusers by its settings.
    """

    proposal_id: str
    broker: str
    op: SessionOp
    version: int
    actor: str
    session: int  # the actor's; 0 when it opens its own
    epoch: int = 0
    evidence_ms: int = 0
    cause: Cause = Cause.UNKNOWN
    authorizes: bool = False
    superusers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return session_key(self.broker)


class ClusterSettings(msgspec.Struct, frozen=True, gc=False, tag=3):
    """The settings that every node of a cluster must share; the log's first record (type 3).

    It also makes tenant `public` and namespace `public/default`, with `default_bundles` bundles.
    """

    proposal_id: str
    cluster: str
    version: int
    actor: str
    heartbeat_ms: int
    lease_ms: int
    liveness_timeout_ms: int
    default_bundles: int

    @property
    def key(self) -> str:
        return CLUSTER_KEY


class TenantChange(msgspec.Struct, frozen=True, gc=False, tag=4):
    """A tenant is created, changed or deleted (type 4)."""

    proposal_id: str
    tenant: str
    op: PolicyOp
    version: int
    actor: str
    session: int
    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    cause: Cause = Cause.UNKNOWN
    principal: str = ""
    proxied_by: str = ""

    @property
    def key(self) -> str:
        return tenant_key(self.tenant)


class NamespaceChange(msgspec.Struct, frozen=True, gc=False, tag=5):
    """A namespace is created with all its bundles, changed, or deleted with all of them (type 5).

    UPDATE says all that can be changed, as `NamespaceInfo` has it.
    """

    proposal_id: str
    namespace: str
    op: PolicyOp
    version: int
    actor: str
    session: int
    bundles: int = 0
    cause: Cause = Cause.UNKNOWN
    auto_scale: tuple[str, ...] = ()
    anti_affinity: str = ""
    principal: str = ""
    proxied_by: str = ""
    limit: int = 0
    limits: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return namespace_key(self.namespace)


class TopicChange(msgspec.Struct, frozen=True, gc=False, tag=6):
    """One move of one scalable topic's layout (type 6).

    `topic`: `tenant/namespace/name`. `segments`: CREATE: the first layout; BEGIN: the children.
    `parents`: BEGIN: the segments that they replace. `end_offsets`: COMMIT: one for every partition
    of every parent, in BEGIN's order; LOST, BEGIN of a RESTORE: all before them is lost.
    `segment_ids`: PRUNE, CLEAR, LOST. `properties`: CREATE, UPDATE; SEALING: the settings of an
    adopted Kafka topic that its seal replaces. `auto_scale`: POLICY. `topic_ids`: OPEN, COMMIT:
    Kafka's; "": unknown. `adoptable`: CREATE of an adopted topic: the entry of the proposer's
    setting that allows it. `keeps`: BEGIN of its cut-over: it stays in the layout.
    """

    proposal_id: str
    topic: str
    move: TopicMove
    version: int
    actor: str
    session: int
    operation: Operation = Operation.NONE
    parents: tuple[int, ...] = ()
    segments: tuple[SegmentInfo, ...] = ()
    end_offsets: tuple[int, ...] = ()
    segment_ids: tuple[int, ...] = ()
    properties: tuple[str, ...] = ()
    cause: TopicCause = TopicCause.UNKNOWN
    auto_scale: tuple[str, ...] = ()
    principal: str = ""
    topic_ids: tuple[str, ...] = ()
    proxied_by: str = ""
    limit: int = 0
    adoptable: str = ""
    keeps: bool = False

    @property
    def key(self) -> str:
        return topic_key(self.topic)


class SubscriptionChange(msgspec.Struct, frozen=True, gc=False, tag=7):
    """A subscription of a scalable topic, or one of its consumers, comes or goes (type 7).

    `incarnation`: the topic's, so that nothing late fits another topic of the same name.
    `kind`: CREATE. `consumer`: JOIN, LEAVE, LAPSED. `instance`: JOIN, LAPSED: its process.
    `segment_ids`: DRAINED; CREATE, RESET: sealed segments that need no reading.
    `positions`: CREATE, RESET: the start, if not the first message; POSITIONS: all of them.
    `dead_letter`, and a queue's `deliveries_max`: CREATE, DEAD_LETTER. `limit`: CREATE, JOIN.
    """

    proposal_id: str
    topic: str
    incarnation: int
    subscription: str
    op: SubscriptionOp
    version: int
    actor: str
    session: int
    kind: SubscriptionKind = SubscriptionKind.STREAM
    consumer: str = ""
    instance: int = 0
    segment_ids: tuple[int, ...] = ()
    cause: TopicCause = TopicCause.UNKNOWN
    positions: tuple[SegmentPositions, ...] = ()
    dead_letter: str = ""
    deliveries_max: int = 0
    principal: str = ""
    proxied_by: str = ""
    limit: int = 0

    @property
    def key(self) -> str:
        return subscription_key(self.topic, self.subscription)


class ArchiveChange(msgspec.Struct, frozen=True, gc=False, tag=8):
    """An archive of the log is registered, or is gone for good (type 8).

    `actor` is no broker and has no session. `first_offset`, `place`: REGISTER.
    """

    proposal_id: str
    archive: str
    op: ArchiveOp
    version: int
    actor: str
    first_offset: int = 0
    place: str = ""

    @property
    def key(self) -> str:
        return archive_key(self.archive)


class PlacementPolicyChange(msgspec.Struct, frozen=True, gc=False, tag=9):
    """A placement policy is created, changed or deleted (type 9); the whole cluster shares it.

    CREATE and UPDATE say all of it. The fields are those of `PlacementPolicy`.
    """

    proposal_id: str
    kind: PolicyKind
    name: str
    op: PolicyOp
    version: int
    actor: str
    session: int
    namespaces: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    min_limit: int = 0
    usage_threshold: int = 0
    brokers: tuple[str, ...] = ()
    cause: Cause = Cause.UNKNOWN
    principal: str = ""
    proxied_by: str = ""

    @property
    def key(self) -> str:
        return policy_key(self.kind, self.name)


class SettingChange(msgspec.Struct, frozen=True, gc=False, tag=10):
    """The cluster's override of a setting begins, changes or ends (type 10).

    `value`: CREATE, UPDATE: as text. `actor`: the broker that received the request.
    """

    proposal_id: str
    name: str
    op: PolicyOp
    version: int
    actor: str
    session: int
    value: str = ""
    cause: Cause = Cause.UNKNOWN
    principal: str = ""
    proxied_by: str = ""

    @property
    def key(self) -> str:
        return override_key(self.name)


class PermissionChange(msgspec.Struct, frozen=True, gc=False, tag=24):
    """Something is granted to a role on a namespace or a topic, or otherwise, or no more (type 24).

    `scope`: `tenant/namespace` or `tenant/namespace/topic`. `actions`: CREATE, UPDATE: all that the
    role may do there, in order; DELETE: none.
    """

    proposal_id: str
    scope: str
    role: str
    op: PolicyOp
    version: int
    actor: str
    session: int
    actions: tuple[str, ...] = ()
    cause: Cause = Cause.UNKNOWN
    principal: str = ""
    proxied_by: str = ""

    @property
    def key(self) -> str:
        return permission_key(self.scope, self.role)


Record = (
    UnitMove
    | SessionChange
    | ClusterSettings
    | TenantChange
    | NamespaceChange
    | TopicChange
    | SubscriptionChange
    | ArchiveChange
    | PlacementPolicyChange
    | SettingChange
    | PermissionChange
)

CLUSTER_KEY: Final = "cluster"
TENANT_KINDS: Final = ("tenant", "namespace", "topic", "subscription", "permission")  # in keys


def session_key(broker: str) -> str:
    """Log and store key of a broker's session."""
    return f"session:{broker}"


def tenant_key(tenant: str) -> str:
    """Log and store key of a tenant."""
    return f"tenant:{tenant}"


def namespace_key(namespace: str) -> str:
    """Log and store key of a namespace."""
    return f"namespace:{namespace}"


def topic_key(topic: str) -> str:
    """Log and store key of a scalable topic, `tenant/namespace/name`."""
    return f"topic:{topic}"


def subscription_key(topic: str, subscription: str) -> str:
    """Log and store key of a subscription; those of a topic follow one another."""
    return f"subscription:{topic}/{subscription}"


def scope_of(key: str) -> str:
    """The tenant that a key belongs to, or "" for what the whole cluster shares.

    No guard of a tenant's record reads another tenant's state, so a replay may be divided by this.

    >>> scope_of("acme/orders/0x00000000_0x40000000"), scope_of("namespace:acme/orders")
    ('acme', 'acme')
    >>> scope_of("topic:acme/orders/bills"), scope_of("subscription:acme/orders/bills/mine")
    ('acme', 'acme')
    >>> scope_of("permission:acme/orders:ada"), scope_of("permission:acme/orders/bills:a/b")
    ('acme', 'acme')
    >>> scope_of("session:b1:8080"), scope_of("leadership")
    ('', '')
    """
    kind, sep, rest = key.partition(":")
    if sep and kind in TENANT_KINDS:
        return rest.partition("/")[0]
    return "" if sep or "/" not in key else key.partition("/")[0]
