"""Answers of nodes, but for those about scalable topics: each one is declared here once."""

from __future__ import annotations

import msgspec

from anabranch.admin.calls import Answer
from anabranch.admin.scalable_models import AutoScaleOverride


class TenantInfo(Answer, frozen=True):
    """A tenant's roles and clusters."""

    admin_roles: list[str]
    allowed_clusters: list[str]


class BundlesData(Answer, frozen=True):
    """The bundles of a namespace: their ends, ascending, and their number."""

    boundaries: list[str]
    num_bundles: int


class Policies(Answer, frozen=True, omit_defaults=True):
    """A namespace's policies."""

    bundles: BundlesData
    replication_clusters: list[str] = msgspec.field(name="replication_clusters")
    scalable_topic_auto_scale_policy: AutoScaleOverride = {}  # the fields that it overrides
    # Its own limits; None where the cluster's setting counts, 0 for any number.
    max_topics_per_namespace: int | None = msgspec.field(
        name="max_topics_per_namespace", default=None
    )
    max_subscriptions_per_topic: int | None = msgspec.field(
        name="max_subscriptions_per_topic", default=None
    )
    max_consumers_per_subscription: int | None = msgspec.field(
        name="max_consumers_per_subscription", default=None
    )


class BundleOwnership(Answer, frozen=True):
    """One bundle and its state on the log."""

    bundle: str
    state: str  # FREE, ASSIGNING, OWNED, RELEASING or SPLITTING
    broker: str  # the owner; while it moves, the next one; else empty
    source: str  # while it moves, the broker that gives it up; else empty
    version: int  # the number of moves that the log has accepted for it
    since_millis: int
    since_offset: int


class NamespaceOwnership(Answer, frozen=True):
    """Every bundle of a namespace, in the order of the ring."""

    namespace: str
    bundles: list[BundleOwnership]


class TopicHashPositions(Answer, frozen=True):
    """Positions of topics on the ring, for cutting a bundle between them."""

    namespace: str
    bundle: str
    topic_hash_positions: dict[str, int]


class LookupData(Answer, frozen=True):
    """The addresses of the owner of a topic's bundle, None for a port that the owner
    does not have.
    """

    broker_url: str | None
    broker_url_tls: str | None
    http_url: str | None
    http_url_tls: str | None
    native_url: str | None


class LeaderBroker(Answer, frozen=True):
    """The broker that leads the cluster."""

    broker_id: str
    service_url: str


class BrokerAddresses(Answer, frozen=True):
    """The addresses of a broker. An empty one means that the broker does not have that port."""

    broker_id: str
    web_service_url: str
    web_service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str


class NamespaceOwnershipStatus(Answer, frozen=True, rename=None):
    """The status of a bundle that a broker owns, in the form of Pulsar's interface."""

    broker_assignment: str
    is_controlled: bool
    is_active: bool


class NodeStatus(Answer, frozen=True):
    """The state of the node that was asked."""

    broker_id: str
    cluster_name: str
    service_url: str  # the address for clients
    version: str
    mode: str  # joining, serving, safe, draining or stopped
    leader: str  # the one that this node knows; empty when there is none
    next_offset: int
    digest: str
    horizon: int
    lease_millis: int
    concerns: list[str]  # matters to look at although it serves; told to superusers
    service_url_tls: str = ""  # the same with TLS; empty for none


class SettingOverrideData(Answer, frozen=True):
    """A setting that the cluster overrides, and its effect on the node that was asked."""

    value: str
    before: str | None  # the override that this one replaced
    since_ms: int
    broker: str  # the one that was asked to
    ignored: str  # why it does not count there; empty: it does


class FailoverParameters(Answer, frozen=True, rename=None):
    """The condition under which secondary brokers may take bundles."""

    min_limit: int  # while fewer primary ones than this are there
    usage_threshold: int  # percent; kept, and decides nothing


class FailoverPolicy(Answer, frozen=True, rename=None):
    """The rule for missing primary brokers."""

    policy_type: str
    parameters: FailoverParameters


class IsolationData(Answer, frozen=True, rename=None):
    """The brokers that the bundles of some namespaces belong to.
    All fields are patterns of whole names.
    """

    namespaces: list[str]
    primary: list[str]
    secondary: list[str]
    auto_failover_policy: FailoverPolicy


class BrokerIsolationData(Answer, frozen=True):
    """The part of one isolation policy that concerns one broker."""

    broker_name: str
    policy_name: str
    primary: bool
    namespace_regex: list[str]


class FailureDomainData(Answer, frozen=True):
    """Brokers that fail together, by their ids."""

    brokers: list[str]


class BrokerLoadStats(Answer, frozen=True):
    """A broker's load as it was reported. None means that the broker reported nothing."""

    broker_id: str
    load: float | None  # the average that decisions are made by; 1 is all of a resource
    msg_throughput: float | None  # bytes a second, in and out
    msg_rate: float | None
    bundles: int | None
    topics: int | None
    updated_millis: int | None
    reported_bundles: int  # the number that the leader was told of
    ignored: str  # why this load takes no part; empty if it does


class UnmovedBundle(Answer, frozen=True):
    """A bundle that was reported but is not offered to another broker."""

    bundle: str
    reason: str
    why: str
    setting: str  # the one that could change this; empty for none


class ExchangeStats(Answer, frozen=True):
    """Two brokers, the more loaded one first, and the load that they would exchange, in bytes a
    second.
    """

    source: str
    destination: str
    wanted: float
    moved: float
    stopped: str  # why not more
    why: str
    next_bundle: str  # the one that it stopped at; empty for none
    unmoved: list[UnmovedBundle]


class UnloadStats(Answer, frozen=True):
    """A bundle that would be moved.
    `deviation` is that of the loads before the move, `predicted` after it.
    """

    bundle: str
    source: str
    destination: str  # empty: the broker that the next look-up finds
    reason: str
    deviation: float
    predicted: float


class CycleStats(Answer, frozen=True):
    """One cycle of shedding."""

    ended: str  # why it does no more
    why: str
    setting: str  # the one that could change this; empty for none
    condition: str | None  # why there is something to do
    counted: str | None  # the name in the metrics if it moves nothing
    hits: int  # cycles in a row with a condition, after this one
    average: float | None
    deviation: float | None
    predicted: float | None
    awaited: list[str]  # brokers whose next report it waits for
    thresholds: str  # those in place of the settings, with the reason; empty for none
    strategy: str  # your own one that decided; empty for the built-in one
    fault: str  # why the strategy that is set did not decide; empty if it did
    exchanges: list[ExchangeStats]
    unloads: list[UnloadStats]


class BalanceOutlook(Answer, frozen=True):
    """The brokers' loads, and the leader's next cycle."""

    leader: str
    at_millis: int
    next_cycle_millis: int | None
    settings: dict[str, bool | int | float | str]
    average: float | None
    deviation: float | None
    hits: int  # cycles in a row with a condition so far
    prevented: str  # why there is no cycle; empty if there is
    brokers: list[BrokerLoadStats]
    cycles: list[CycleStats]  # the next one; none where it is prevented
