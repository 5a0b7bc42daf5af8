"""Bodies of requests and answers, by Pulsar's field names; they make the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from anabranch.broker.http.models.wanted import Texts, Wanted
from anabranch.core.names import NAME_LENGTH_MAX

Authoritative = Annotated[
    bool, Query(description="Accepted and not needed: every node serves every request.")
]
# Bounded so that a tenant's record stays far below what Kafka takes as one message.
_Roles = Annotated[
    list[Annotated[str, Field(max_length=NAME_LENGTH_MAX)]],
    Field(default_factory=list, max_length=1_000),
    Field(fail_fast=True),
]


class Problem(BaseModel):
    """The answer to every refused request."""

    reason: str = Field(description="The fault and its remedy.")


class TenantInfo(Wanted):
    """A tenant's administrators, by their roles, and the clusters that it may use."""

    adminRoles: _Roles
    allowedClusters: _Roles


class ClusterData(BaseModel):
    """Addresses of a cluster."""

    serviceUrl: str = Field(description="For administration and look-ups over HTTP.")
    serviceUrlTls: str = Field(description="The same with TLS; empty: none, as in the others.")
    brokerServiceUrl: str = Field(description="For clients of the binary protocol.")
    brokerServiceUrlTls: str = Field(description="The same with TLS.")


class BundlesData(BaseModel):
    """A namespace's division into bundles."""

    boundaries: list[str] = Field(
        default_factory=list, description="Ends of the bundles, ascending, 0x and 8 hex digits."
    )
    numBundles: int = Field(description="Number of bundles.")


class BundlesWanted(Wanted):
    """The division of a new namespace; the ranges are of equal size."""

    boundaries: Texts = Field(
        default_factory=list, description="May be left out; if given, those of equal ranges."
    )
    numBundles: int | None = None


class PoliciesWanted(BaseModel):
    """A new namespace's policies: the count of bundles, either way Pulsar's clients write it.

    Pulsar's clients send every policy they know; those that say nothing are accepted.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    bundles: BundlesWanted | None = None
    numBundles: int | None = None
    replication_clusters: Texts = Field(
        default_factory=list, description="May be left out, or name this cluster alone."
    )
    allowed_clusters: Texts = Field(default_factory=list, description="The same.")
    scalableTopicAutoScalePolicy: dict[str, Any] | None = Field(
        default=None,
        description="Its overrides of the nodes' auto-scale policy; may be left out.",
    )


class Policies(BaseModel):
    """A namespace's policies, as far as this version has any."""

    bundles: BundlesData
    replication_clusters: list[str]
    scalableTopicAutoScalePolicy: dict[str, bool | int | float] | None = Field(
        default=None,
        description="Its overrides of the nodes' auto-scale policy; absent for none.",
    )
    max_topics_per_namespace: int | None = Field(
        default=None, description="Its own limit; absent where the cluster's counts."
    )
    max_subscriptions_per_topic: int | None = Field(default=None, description="The same.")
    max_consumers_per_subscription: int | None = Field(default=None, description="The same.")


class BundleOwnership(BaseModel):
    """One bundle of a namespace and its entry in the log."""

    bundle: str = Field(description="Its range, as other paths take it.")
    state: str = Field(description="FREE, ASSIGNING, OWNED, RELEASING or SPLITTING.")
    broker: str = Field(description="The owner; while it moves, the next one; else empty.")
    source: str = Field(description="While it moves, the broker that gives it up; else empty.")
    version: int = Field(description="Number of moves that the log has accepted for it.")
    sinceMillis: int = Field(description="Time of the last of them in the log.")
    sinceOffset: int = Field(description="Offset of the last of them in the log.")


class NamespaceOwnership(BaseModel):
    """Every bundle of a namespace, in the order of the ring."""

    namespace: str
    bundles: list[BundleOwnership]


class TopicHashPositions(BaseModel):
    """Positions of topics on the ring, for cutting a bundle between them."""

    namespace: str
    bundle: str
    topicHashPositions: dict[str, int]


class LookupData(BaseModel):
    """The addresses of the owner of a topic's bundle; null for a port that it does not offer."""

    brokerUrl: str | None
    brokerUrlTls: str | None
    httpUrl: str | None
    httpUrlTls: str | None
    nativeUrl: str | None


class LeaderBroker(BaseModel):
    """The broker that leads the cluster."""

    brokerId: str
    serviceUrl: str


class BrokerAddresses(BaseModel):
    """A broker's addresses; empty for a port that it does not have."""

    brokerId: str
    webServiceUrl: str = Field(description="For administration and look-ups over HTTP.")
    webServiceUrlTls: str = Field(description="The same with TLS.")
    brokerServiceUrl: str = Field(description="For clients of the binary protocol.")
    brokerServiceUrlTls: str = Field(description="The same with TLS.")


class NamespaceOwnershipStatus(BaseModel):
    """Pulsar's word for a bundle that a broker owns."""

    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


class NodeStatus(BaseModel):
    """The state of the node that was asked."""

    brokerId: str
    clusterName: str
    serviceUrl: str = Field(description="The address for clients; empty: with TLS alone.")
    serviceUrlTls: str = Field(description="Their address with TLS; empty: none.")
    version: str
    mode: str = Field(description="joining, serving, safe, draining or stopped.")
    leader: str = Field(description="The leader as this node sees it; empty when there is none.")
    nextOffset: int = Field(description="First offset of the log not applied yet.")
    digest: str = Field(description="Hash of the whole applied state, equal on equal nodes.")
    horizon: int = Field(description="Offset up to which a snapshot stands; -1 for none.")
    leaseMillis: int = Field(description="The rest of its lease; 0 if it has lapsed.")
    concerns: list[str] = Field(description="Faults that people should look at, though it serves.")
