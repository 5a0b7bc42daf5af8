"""Tenants, namespaces and their bundles, and look-ups of who serves a topic.

A bundle is named by its range, such as 0x00000000_0x40000000.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.admin.calls import Call, Resource, RestMethod, TransportT, path
from anabranch.admin.models import (
    BundlesData,
    LookupData,
    NamespaceOwnership,
    Policies,
    TenantInfo,
    TopicHashPositions,
)
from anabranch.admin.scalable_models import AutoScaleOverride
from anabranch.core import names

_TOPICS: Final = "maxTopicsPerNamespace"
_SUBSCRIPTIONS: Final = "maxSubscriptionsPerTopic"
_CONSUMERS: Final = "maxConsumersPerSubscription"
_POSITIONS: Final = "specified_positions_divide"


def _tenant(name: str) -> str:
    return path("admin", "v2", "tenants", names.tenant(name))


def _info(admin_roles: Sequence[str], allowed_clusters: Sequence[str]) -> TenantInfo:
    return TenantInfo(admin_roles=list(admin_roles), allowed_clusters=list(allowed_clusters))


def home(namespace: str, *more: str | int) -> str:
    """Returns the path of a namespace, or of something in it. Raises InvalidInputError."""
    return path("admin", "v2", "namespaces", *names.parse_namespace(namespace).split("/"), *more)


def _policy(namespace: str) -> str:
    return home(namespace, "scalableTopicAutoScalePolicy")


def _path(topic: str, *more: str) -> str:
    name, _ = names.parse_topic(topic)
    domain, _, rest = name.partition("://")
    return path("lookup", "v2", "topic", domain, *rest.split("/", 2), *more)


class Tenants(Resource[TransportT]):
    """Operations on tenants."""

    @RestMethod
    def get_clusters(self) -> Call[list[str]]:
        """Returns the name of the one cluster that the node belongs to."""
        return Call("GET", path("admin", "v2", "clusters"))

    @RestMethod
    def get_tenants(self) -> Call[list[str]]:
        """Returns the names of all tenants."""
        return Call("GET", path("admin", "v2", "tenants"))

    @RestMethod
    def get_tenant_info(self, tenant: str) -> Call[TenantInfo]:
        """Returns a tenant's roles and clusters."""
        return Call("GET", _tenant(tenant))

    @RestMethod
    def create_tenant(
        self, tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str] = ()
    ) -> Call[None]:
        """Creates a tenant that may use those clusters. `get_clusters` returns their names."""
        body = _info(admin_roles, allowed_clusters)
        return Call("PUT", _tenant(tenant), body=body)

    @RestMethod
    def update_tenant(
        self, tenant: str, allowed_clusters: Sequence[str], admin_roles: Sequence[str]
    ) -> Call[None]:
        """Replaces a tenant's roles and clusters."""
        body = _info(admin_roles, allowed_clusters)
        return Call("POST", _tenant(tenant), body=body)

    @RestMethod
    def delete_tenant(self, tenant: str) -> Call[None]:
        """Deletes a tenant. A node refuses while it has namespaces."""
        return Call("DELETE", _tenant(tenant))


class Namespaces(Resource[TransportT]):
    """Operations on namespaces."""

    @RestMethod
    def get_namespaces(self, tenant: str) -> Call[list[str]]:
        """Returns the names, tenant/namespace, of a tenant's namespaces."""
        return Call("GET", path("admin", "v2", "namespaces", names.tenant(tenant)))

    @RestMethod
    def get_policies(self, namespace: str) -> Call[Policies]:
        """Returns a namespace's policies."""
        return Call("GET", home(namespace))

    @RestMethod
    def create_namespace(self, namespace: str, num_bundles: int | None = None) -> Call[None]:
        """Creates a namespace with `num_bundles` bundles of equal size.
        None takes the number from the nodes' settings.
        """
        body: dict[str, Any] = (
            {} if num_bundles is None else {"bundles": {"numBundles": num_bundles}}
        )
        return Call("PUT", home(namespace), body=body)

    @RestMethod
    def delete_namespace(self, namespace: str) -> Call[None]:
        """Unloads a namespace's bundles and deletes it.
        A node refuses while it has scalable topics.
        """
        return Call("DELETE", home(namespace))

    @RestMethod
    def unload(self, namespace: str) -> Call[None]:
        """Takes every bundle from its owner. The next look-ups assign them."""
        return Call("PUT", home(namespace, "unload"))

    @RestMethod
    def get_anti_affinity_group(self, namespace: str) -> Call[str]:
        """Returns the anti-affinity group of a namespace, "" for none."""
        return Call("GET", home(namespace, "antiAffinity"))

    @RestMethod
    def set_anti_affinity_group(self, namespace: str, group: str) -> Call[None]:
        """Puts a namespace into a group. The bundles of a group's namespaces keep apart."""
        return Call("POST", home(namespace, "antiAffinity"), body=group)

    @RestMethod
    def remove_anti_affinity_group(self, namespace: str) -> Call[None]:
        """Takes a namespace out of its anti-affinity group."""
        return Call("DELETE", home(namespace, "antiAffinity"))

    @RestMethod
    def get_permissions(self, namespace: str) -> Call[dict[str, list[str]]]:
        """Returns the actions of each role on all topics of a namespace."""
        return Call("GET", home(namespace, "permissions"))

    @RestMethod
    def grant_permission_on_namespace(
        self, namespace: str, role: str, actions: Sequence[str]
    ) -> Call[None]:
        """Grants a role these actions on all topics of a namespace.
        It replaces the role's former grant there.
        """
        return Call("POST", home(namespace, "permissions", role), body=list(actions))

    @RestMethod
    def revoke_permissions_on_namespace(self, namespace: str, role: str) -> Call[None]:
        """Revokes the grants to a role on a namespace, but not those on its topics."""
        return Call("DELETE", home(namespace, "permissions", role))

    @RestMethod
    def get_scalable_topic_auto_scale_policy(self, namespace: str) -> Call[AutoScaleOverride]:
        """Returns the fields that the namespace overrides of the nodes' settings, empty
        for none.
        """
        return Call("GET", _policy(namespace))

    @RestMethod
    def set_scalable_topic_auto_scale_policy(
        self, namespace: str, policy: AutoScaleOverride
    ) -> Call[None]:
        """Replaces the namespace's override as a whole."""
        return Call("POST", _policy(namespace), body=policy)

    @RestMethod
    def remove_scalable_topic_auto_scale_policy(self, namespace: str) -> Call[None]:
        """Removes the namespace's override, so that the nodes' settings apply again."""
        return Call("DELETE", _policy(namespace))

    @RestMethod
    def get_max_topics_per_namespace(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of scalable topics, None if the cluster's setting
        counts.
        """
        return Call("GET", home(namespace, _TOPICS))

    @RestMethod
    def set_max_topics_per_namespace(self, namespace: str, limit: int) -> Call[None]:
        """Limits the scalable topics of the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _TOPICS), body=limit)

    @RestMethod
    def remove_max_topics_per_namespace(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _TOPICS))

    @RestMethod
    def get_max_subscriptions_per_topic(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of subscriptions of a topic, None if the cluster's
        setting counts.
        """
        return Call("GET", home(namespace, _SUBSCRIPTIONS))

    @RestMethod
    def set_max_subscriptions_per_topic(self, namespace: str, limit: int) -> Call[None]:
        """Limits the subscriptions of each topic in the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _SUBSCRIPTIONS), body=limit)

    @RestMethod
    def remove_max_subscriptions_per_topic(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _SUBSCRIPTIONS))

    @RestMethod
    def get_max_consumers_per_subscription(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of consumers of a subscription, None if the cluster's
        setting counts.
        """
        return Call("GET", home(namespace, _CONSUMERS))

    @RestMethod
    def set_max_consumers_per_subscription(self, namespace: str, limit: int) -> Call[None]:
        """Limits the consumers of each subscription in the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _CONSUMERS), body=limit)

    @RestMethod
    def remove_max_consumers_per_subscription(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _CONSUMERS))


class Bundles(Resource[TransportT]):
    """Operations on bundles."""

    @RestMethod
    def get_bundles(self, namespace: str) -> Call[BundlesData]:
        """Returns the ends of a namespace's bundles."""
        return Call("GET", home(namespace, "bundles"))

    @RestMethod
    def get_ownership(self, namespace: str) -> Call[NamespaceOwnership]:
        """Returns every bundle of a namespace with its owner and state."""
        return Call("GET", home(namespace, "bundles", "ownership"))

    @RestMethod
    def get_topic_hash_positions(
        self, namespace: str, bundle: str, topics: Sequence[str]
    ) -> Call[TopicHashPositions]:
        """Returns the ring positions of those topics that fall into the bundle.
        A broker must own it.
        """
        query: dict[str, str | list[str]] = {"topics": list(topics)}
        return Call("GET", home(namespace, bundle, "topicHashPositions"), query)

    @RestMethod
    def unload_bundle(
        self, namespace: str, bundle: str, destination_broker: str = ""
    ) -> Call[None]:
        """Takes a bundle from its owner. It does nothing where nobody owns the bundle.

        `destination_broker` (host:port), if given, owns it next.
        """
        return Call("PUT", home(namespace, bundle, "unload"), _to(destination_broker))

    @RestMethod
    def unload_topic(self, topic: str, destination_broker: str = "") -> Call[None]:
        """Takes the bundle of a topic, `[domain://]tenant/namespace/name`, from its owner.

        `destination_broker` (host:port), if given, owns it next.
        """
        name, _ = names.parse_topic(topic)
        domain, _, rest = name.partition("://")
        parts = rest.split("/", 2)
        where = "scalable" if domain == names.SCALABLE_DOMAIN else domain
        return Call("PUT", path("admin", "v2", where, *parts, "unload"), _to(destination_broker))

    @RestMethod
    def split_bundle(
        self,
        namespace: str,
        bundle: str,
        positions: Sequence[int] = (),
        *,
        algorithm: str = "",
        unload: bool = False,
    ) -> Call[None]:
        """Divides a bundle in halves, at `positions`, or by `algorithm`. `unload` takes the parts
        from their owner too.

        `bundle` may be LARGEST (by topics) or HOT (by traffic).
        """
        query: dict[str, str | list[str]] = {"unload": "true"} if unload else {}
        body = None
        if algorithm:
            query["splitAlgorithmName"] = algorithm
        if positions:
            query["splitAlgorithmName"] = _POSITIONS
            body = list(positions)
        return Call("PUT", home(namespace, bundle, "split"), query, body)

    @RestMethod
    def clear_bundle_backlog(
        self, namespace: str, bundle: str, subscription: str = ""
    ) -> Call[None]:
        """Skips all messages for every stream subscription, in every scalable topic of the bundle.

        `subscription`, if given, limits this to the subscriptions of that name.
        """
        parts = (names.subscription(subscription),) if subscription else ()
        return Call("POST", home(namespace, bundle, "clearBacklog", *parts))

    @RestMethod
    def unsubscribe_bundle(self, namespace: str, bundle: str, subscription: str) -> Call[None]:
        """Deletes the subscriptions of this name in every scalable topic of the bundle."""
        name = names.subscription(subscription)
        return Call("POST", home(namespace, bundle, "unsubscribe", name))


class Lookups(Resource[TransportT]):
    """Look-ups."""

    @RestMethod
    def lookup_topic(self, topic: str) -> Call[LookupData]:
        """Returns the addresses of the topic's owner. The node waits while the bundle moves, and
        assigns a bundle that nobody owns.

        A topic is [domain://]tenant/namespace/name. It need not exist, because its bundle has an
        owner.
        """
        return Call("GET", _path(topic))

    @RestMethod
    def get_bundle_range(self, topic: str) -> Call[str]:
        """Returns the range of the bundle that the topic's name falls into."""
        return Call("GET", _path(topic, "bundle"))


def _to(broker: str) -> dict[str, str]:
    """Raises InvalidInputError."""
    return {"destinationBroker": names.broker_id(broker)} if broker else {}
