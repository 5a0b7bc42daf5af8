"""The right that each kind of request to a node needs, and the resource it needs it on.

REST routes are listed by method and path, commands of the binary protocol by name. Tests hold these
equal to those of nodes and proxies. So a new one needs a row, and no row is left over. If Pulsar
has the path, the need is Pulsar's, except for the subjects of `scale` and `view`.

A path's parameters `tenant`, `namespace` and `topic` name the resource, as far down as its level
says; a command's fields do alike. A connection's own open things are its own affair. Closing or
reporting one needs only that the connection is somebody's. The right was checked when it was opened
(and a revoked one is closed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.core.security.actions import (
    ANYONE,
    CONSUMING,
    PUBLIC,
    SCALING,
    SUPERUSER,
    TENANT_ADMIN,
    USING,
    VIEWING,
    Need,
)
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceLevel,
    ResourceName,
    namespace_resource,
    tenant_resource,
    topic_resource,
)


class AccessRule(msgspec.Struct, frozen=True):
    """The need of a request, and the level of its resource."""

    need: Need
    level: ResourceLevel = ResourceLevel.CLUSTER


_T, _N, _X = ResourceLevel.TENANT, ResourceLevel.NAMESPACE, ResourceLevel.TOPIC
EVERYBODY: Final = AccessRule(PUBLIC)
_SOMEBODY: Final = AccessRule(ANYONE)
_SUPERUSER: Final = AccessRule(SUPERUSER)
_ADMIN_OF_TENANT: Final = AccessRule(TENANT_ADMIN, _T)
_ADMIN_OF_NAMESPACE: Final = AccessRule(TENANT_ADMIN, _N)
_ADMIN_OF_TOPIC: Final = AccessRule(TENANT_ADMIN, _X)
_SEE_NAMESPACE: Final = AccessRule(VIEWING, _N)
_SEE_TOPIC: Final = AccessRule(VIEWING, _X)
_SCALE: Final = AccessRule(SCALING, _X)
_CONSUME: Final = AccessRule(CONSUMING, _X)
_USE: Final = AccessRule(USING, _X)
# Superusers', though of a namespace or topic: where a bundle lies is the cluster's affair.
_CLUSTER_S_BUNDLES: Final = AccessRule(SUPERUSER, _N)
_CLUSTER_S_SEGMENTS: Final = AccessRule(SUPERUSER, _X)

_ADMIN: Final = "/admin/v2"
_BROKERS: Final = f"{_ADMIN}/brokers"
_CLUSTERS: Final = f"{_ADMIN}/clusters/{{cluster}}"
_ISOLATION: Final = f"{_CLUSTERS}/namespaceIsolationPolicies"
_DOMAINS: Final = f"{_CLUSTERS}/failureDomains"
_TENANT: Final = f"{_ADMIN}/tenants/{{tenant}}"
_NAMESPACES: Final = f"{_ADMIN}/namespaces"
_NAMESPACE: Final = f"{_NAMESPACES}/{{tenant}}/{{namespace}}"
_TOPICS: Final = f"{_ADMIN}/scalable/{{tenant}}/{{namespace}}"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscriptions/{{subscription}}"
_SEGMENT: Final = f"{_ADMIN}/segments/{{tenant}}/{{namespace}}/{{topic}}/{{descriptor}}"
_OF_SEGMENT: Final = f"{_SEGMENT}/subscription/{{subscription}}"
_LOOKUP: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"

REST: Final[Mapping[str, AccessRule]] = {
    # The cluster. Health is for whoever restarts nodes; addresses are for whoever looks topics up.
    "GET /livez": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /status.html": EVERYBODY,
    f"GET {_BROKERS}/ready": EVERYBODY,
    "GET /docs": EVERYBODY,
    "GET /openapi.json": EVERYBODY,
    "GET /metrics": _SUPERUSER,  # they name topics; authenticateMetricsEndpoint opens them
    f"GET {_BROKERS}": _SOMEBODY,
    f"GET {_BROKERS}/addresses": _SOMEBODY,
    f"GET {_BROKERS}/leaderBroker": _SOMEBODY,
    f"GET {_BROKERS}/status": _SOMEBODY,
    f"GET {_BROKERS}/version": _SOMEBODY,
    f"GET {_BROKERS}/{{cluster}}": _SOMEBODY,
    f"GET {_ADMIN}/clusters": _SOMEBODY,
    f"GET {_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces": _SUPERUSER,
    f"GET {_BROKERS}/health": _SUPERUSER,
    f"GET {_BROKERS}/configuration/overrides": _SUPERUSER,
    f"GET {_BROKERS}/configuration/runtime": _SUPERUSER,
    f"DELETE {_BROKERS}/configuration/{{setting}}": _SUPERUSER,
    f"POST {_BROKERS}/configuration/{{setting}}/{{value}}": _SUPERUSER,
    f"GET {_ADMIN}/balance": _SUPERUSER,
    f"GET {_DOMAINS}": _SUPERUSER,
    f"GET {_DOMAINS}/{{domain}}": _SUPERUSER,
    f"POST {_DOMAINS}/{{domain}}": _SUPERUSER,
    f"DELETE {_DOMAINS}/{{domain}}": _SUPERUSER,
    f"GET {_ISOLATION}": _SUPERUSER,
    f"GET {_ISOLATION}/brokers": _SUPERUSER,
    f"GET {_ISOLATION}/{{policy}}": _SUPERUSER,
    f"POST {_ISOLATION}/{{policy}}": _SUPERUSER,
    f"DELETE {_ISOLATION}/{{policy}}": _SUPERUSER,
    # Tenants. A tenant's administrators do not choose its administrators.
    f"GET {_ADMIN}/tenants": _SUPERUSER,
    f"GET {_TENANT}": _ADMIN_OF_TENANT,
    f"PUT {_TENANT}": AccessRule(SUPERUSER, _T),
    f"POST {_TENANT}": AccessRule(SUPERUSER, _T),
    f"DELETE {_TENANT}": AccessRule(SUPERUSER, _T),
    # Namespaces.
    f"GET {_NAMESPACES}/{{tenant}}": _ADMIN_OF_TENANT,
    f"GET {_NAMESPACE}": _SEE_NAMESPACE,
    f"PUT {_NAMESPACE}": _ADMIN_OF_NAMESPACE,
    f"DELETE {_NAMESPACE}": _ADMIN_OF_NAMESPACE,
    f"GET {_NAMESPACE}/antiAffinity": _SEE_NAMESPACE,
    f"POST {_NAMESPACE}/antiAffinity": _ADMIN_OF_NAMESPACE,
    f"DELETE {_NAMESPACE}/antiAffinity": _ADMIN_OF_NAMESPACE,
    f"GET {_NAMESPACE}/scalableTopicAutoScalePolicy": _SEE_NAMESPACE,
    f"POST {_NAMESPACE}/scalableTopicAutoScalePolicy": _ADMIN_OF_NAMESPACE,
    f"DELETE {_NAMESPACE}/scalableTopicAutoScalePolicy": _ADMIN_OF_NAMESPACE,
    # A tenant's limits are not for its administrators to say.
    f"GET {_NAMESPACE}/maxTopicsPerNamespace": _SEE_NAMESPACE,
    f"POST {_NAMESPACE}/maxTopicsPerNamespace": AccessRule(SUPERUSER, _N),
    f"DELETE {_NAMESPACE}/maxTopicsPerNamespace": AccessRule(SUPERUSER, _N),
    f"GET {_NAMESPACE}/maxSubscriptionsPerTopic": _SEE_NAMESPACE,
    f"POST {_NAMESPACE}/maxSubscriptionsPerTopic": AccessRule(SUPERUSER, _N),
    f"DELETE {_NAMESPACE}/maxSubscriptionsPerTopic": AccessRule(SUPERUSER, _N),
    f"GET {_NAMESPACE}/maxConsumersPerSubscription": _SEE_NAMESPACE,
    f"POST {_NAMESPACE}/maxConsumersPerSubscription": AccessRule(SUPERUSER, _N),
    f"DELETE {_NAMESPACE}/maxConsumersPerSubscription": AccessRule(SUPERUSER, _N),
    f"GET {_NAMESPACE}/permissions": _ADMIN_OF_NAMESPACE,
    f"POST {_NAMESPACE}/permissions/{{role}}": _ADMIN_OF_NAMESPACE,
    f"DELETE {_NAMESPACE}/permissions/{{role}}": _ADMIN_OF_NAMESPACE,
    f"GET {_NAMESPACE}/bundles": _SEE_NAMESPACE,
    f"GET {_NAMESPACE}/bundles/ownership": _SEE_NAMESPACE,
    f"GET {_NAMESPACE}/{{bundle}}/topicHashPositions": _SEE_NAMESPACE,
    f"PUT {_NAMESPACE}/unload": _CLUSTER_S_BUNDLES,
    f"PUT {_NAMESPACE}/{{bundle}}/unload": _CLUSTER_S_BUNDLES,
    f"PUT {_NAMESPACE}/{{bundle}}/split": _CLUSTER_S_BUNDLES,
    f"POST {_NAMESPACE}/{{bundle}}/clearBacklog": AccessRule(CONSUMING, _N),
    f"POST {_NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}": AccessRule(CONSUMING, _N),
    f"POST {_NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}": AccessRule(CONSUMING, _N),
    # Topics.
    f"GET {_LOOKUP}": _SEE_TOPIC,
    f"GET {_LOOKUP}/bundle": _SEE_TOPIC,
    f"PUT {_ADMIN}/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}/unload": _ADMIN_OF_TOPIC,
    f"GET {_TOPICS}": _SEE_NAMESPACE,
    f"GET {_TOPIC}": _SEE_TOPIC,
    f"PUT {_TOPIC}": _ADMIN_OF_TOPIC,
    f"DELETE {_TOPIC}": _ADMIN_OF_TOPIC,
    f"GET {_TOPIC}/stats": _SEE_TOPIC,
    f"GET {_TOPIC}/segments/{{segmentId}}/stats": _SEE_TOPIC,
    f"POST {_TOPIC}/segments/{{segmentId}}/restore": _ADMIN_OF_TOPIC,
    f"GET {_TOPIC}/properties": _SEE_TOPIC,
    f"PUT {_TOPIC}/properties": _ADMIN_OF_TOPIC,
    f"DELETE {_TOPIC}/properties": _ADMIN_OF_TOPIC,
    f"GET {_TOPIC}/permissions": _ADMIN_OF_TOPIC,
    f"POST {_TOPIC}/permissions/{{role}}": _ADMIN_OF_TOPIC,
    f"DELETE {_TOPIC}/permissions/{{role}}": _ADMIN_OF_TOPIC,
    f"GET {_TOPIC}/autoScalePolicy": _SEE_TOPIC,
    f"POST {_TOPIC}/autoScalePolicy": _SCALE,
    f"DELETE {_TOPIC}/autoScalePolicy": _SCALE,
    f"GET {_TOPIC}/adopt": _ADMIN_OF_TOPIC,
    f"POST {_TOPIC}/adopt": _ADMIN_OF_TOPIC,
    f"POST {_TOPIC}/release": _ADMIN_OF_TOPIC,
    f"POST {_TOPIC}/give-back": _ADMIN_OF_TOPIC,
    f"POST {_TOPIC}/split/{{segmentId}}": _SCALE,
    f"POST {_TOPIC}/merge/{{segmentId1}}/{{segmentId2}}": _SCALE,
    f"POST {_TOPIC}/rebucket/{{segmentId}}": _SCALE,
    f"POST {_TOPIC}/prepare": _SCALE,
    # Subscriptions.
    f"PUT {_SUBSCRIPTION}": _CONSUME,
    f"DELETE {_SUBSCRIPTION}": _CONSUME,
    f"POST {_SUBSCRIPTION}/seek": _CONSUME,
    f"POST {_SUBSCRIPTION}/skip-all": _CONSUME,
    f"GET {_SUBSCRIPTION}/deadLetterPolicy": _SEE_TOPIC,
    f"PUT {_SUBSCRIPTION}/deadLetterPolicy": _CONSUME,
    f"DELETE {_SUBSCRIPTION}/deadLetterPolicy": _CONSUME,
    # Segments, which are what topics are made of.
    f"PUT {_SEGMENT}": _CLUSTER_S_SEGMENTS,
    f"DELETE {_SEGMENT}": _CLUSTER_S_SEGMENTS,
    f"POST {_SEGMENT}/terminate": _CLUSTER_S_SEGMENTS,
    f"PUT {_OF_SEGMENT}": _CLUSTER_S_SEGMENTS,
    f"DELETE {_OF_SEGMENT}": _CLUSTER_S_SEGMENTS,
    f"GET {_OF_SEGMENT}/backlog": _CLUSTER_S_SEGMENTS,
    f"POST {_OF_SEGMENT}/seek": _CLUSTER_S_SEGMENTS,
    f"POST {_OF_SEGMENT}/skip-all": _CLUSTER_S_SEGMENTS,
}

WIRE: Final[Mapping[str, AccessRule]] = {
    "LOOKUP": _SEE_TOPIC,
    "GET_TOPICS_OF_NAMESPACE": _SEE_NAMESPACE,
    "WATCH_TOPIC_LIST": _SEE_NAMESPACE,
    "WATCH_TOPIC_LIST_CLOSE": _SOMEBODY,
    "SCALABLE_TOPIC_LOOKUP": _SEE_TOPIC,
    "SCALABLE_TOPIC_CLOSE": _SOMEBODY,
    "SCALABLE_TOPIC_LINEAGE": _SEE_TOPIC,
    "WATCH_SCALABLE_TOPICS": _SEE_NAMESPACE,
    "WATCH_SCALABLE_TOPICS_CLOSE": _SOMEBODY,
    "SCALABLE_TOPIC_SUBSCRIBE": _CONSUME,
    "SCALABLE_TOPIC_UNSUBSCRIBE": _SOMEBODY,
    "SCALABLE_CONSUMER_REPORT": _SOMEBODY,
    "SCALABLE_TRAFFIC_REPORT": _USE,
}


# Parts of a request or of its answer that may need more than the request itself.
CREATING_TOPICS: Final[Need] = REST[f"PUT {_TOPIC}"].need
PLACING_BUNDLES: Final[Need] = REST[f"PUT {_NAMESPACE}/{{bundle}}/unload"].need
SEEING_CONCERNS: Final[Need] = REST[f"GET {_BROKERS}/health"].need


def resource_of(rule: AccessRule, names: Mapping[str, str]) -> ResourceName:
    """The resource of a request, by a path's parameters or a command's names, checked before.

    >>> str(resource_of(REST["GET /admin/v2/tenants/{tenant}"], {"tenant": "acme"}))
    'acme'
    """
    if rule.level is ResourceLevel.CLUSTER:
        return CLUSTER
    if rule.level is ResourceLevel.TENANT:
        return tenant_resource(names["tenant"])
    namespace = f"{names['tenant']}/{names['namespace']}"
    if rule.level is ResourceLevel.NAMESPACE:
        return namespace_resource(namespace)
    return topic_resource(f"{namespace}/{names['topic']}")
