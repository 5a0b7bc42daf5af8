"""Namespaces: `/admin/v2/namespaces`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from anabranch.admin.calls import (
    NAMES,
    PERMISSIONS,
    Answer,
    Call,
    Resource,
    RestMethod,
    TransportT,
    nothing,
    path,
)
from anabranch.admin.scalable_models import AutoScaleOverride, override
from anabranch.core import names


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


_LIMIT: Final = msgspec.json.Decoder(int | None).decode
_TOPICS: Final = "maxTopicsPerNamespace"
_SUBSCRIPTIONS: Final = "maxSubscriptionsPerTopic"
_CONSUMERS: Final = "maxConsumersPerSubscription"
_POLICIES: Final = msgspec.json.Decoder(Policies).decode


def home(namespace: str, *more: str | int) -> str:
    """Returns the path of a namespace, or of something in it. Raises InvalidInputError."""
    return path("admin", "v2", "namespaces", *names.parse_namespace(namespace).split("/"), *more)


def _policy(namespace: str) -> str:
    return home(namespace, "scalableTopicAutoScalePolicy")


class Namespaces(Resource[TransportT]):
    """Operations on namespaces."""

    @RestMethod
    def get_namespaces(self, tenant: str) -> Call[list[str]]:
        """Returns the names, tenant/namespace, of a tenant's namespaces."""
        return Call("GET", path("admin", "v2", "namespaces", names.tenant(tenant)), NAMES)

    @RestMethod
    def get_policies(self, namespace: str) -> Call[Policies]:
        """Returns a namespace's policies."""
        return Call("GET", home(namespace), _POLICIES)

    @RestMethod
    def create_namespace(self, namespace: str, num_bundles: int | None = None) -> Call[None]:
        """Creates a namespace with `num_bundles` bundles of equal size.
        None takes the number from the nodes' settings.
        """
        body: dict[str, Any] = (
            {} if num_bundles is None else {"bundles": {"numBundles": num_bundles}}
        )
        return Call("PUT", home(namespace), nothing, body=body)

    @RestMethod
    def delete_namespace(self, namespace: str) -> Call[None]:
        """Unloads a namespace's bundles and deletes it.
        A node refuses while it has scalable topics.
        """
        return Call("DELETE", home(namespace), nothing)

    @RestMethod
    def unload(self, namespace: str) -> Call[None]:
        """Takes every bundle from its owner. The next look-ups assign them."""
        return Call("PUT", home(namespace, "unload"), nothing)

    @RestMethod
    def get_anti_affinity_group(self, namespace: str) -> Call[str]:
        """Returns the anti-affinity group of a namespace, "" for none."""
        return Call("GET", home(namespace, "antiAffinity"), bytes.decode)

    @RestMethod
    def set_anti_affinity_group(self, namespace: str, group: str) -> Call[None]:
        """Puts a namespace into a group. The bundles of a group's namespaces keep apart."""
        return Call("POST", home(namespace, "antiAffinity"), nothing, body=group)

    @RestMethod
    def remove_anti_affinity_group(self, namespace: str) -> Call[None]:
        """Takes a namespace out of its anti-affinity group."""
        return Call("DELETE", home(namespace, "antiAffinity"), nothing)

    @RestMethod
    def get_anti_affinity_namespaces(
        self, cluster: str, group: str, tenant: str = ""
    ) -> Call[list[str]]:
        """Returns the namespaces of an anti-affinity group, only those of `tenant` if given."""
        query: dict[str, str | list[str]] = {"tenant": tenant} if tenant else {}
        asked = path("admin", "v2", "namespaces", cluster, "antiAffinity", group)
        return Call("GET", asked, NAMES, query)

    @RestMethod
    def get_permissions(self, namespace: str) -> Call[dict[str, list[str]]]:
        """Returns the actions of each role on all topics of a namespace."""
        return Call("GET", home(namespace, "permissions"), PERMISSIONS)

    @RestMethod
    def grant_permission_on_namespace(
        self, namespace: str, role: str, actions: Sequence[str]
    ) -> Call[None]:
        """Grants a role these actions on all topics of a namespace.
        It replaces the role's former grant there.
        """
        return Call("POST", home(namespace, "permissions", role), nothing, body=list(actions))

    @RestMethod
    def revoke_permissions_on_namespace(self, namespace: str, role: str) -> Call[None]:
        """Revokes the grants to a role on a namespace, but not those on its topics."""
        return Call("DELETE", home(namespace, "permissions", role), nothing)

    @RestMethod
    def get_scalable_topic_auto_scale_policy(self, namespace: str) -> Call[AutoScaleOverride]:
        """Returns the fields that the namespace overrides of the nodes' settings, empty
        for none.
        """
        return Call("GET", _policy(namespace), override)

    @RestMethod
    def set_scalable_topic_auto_scale_policy(
        self, namespace: str, policy: AutoScaleOverride
    ) -> Call[None]:
        """Replaces the namespace's override as a whole."""
        return Call("POST", _policy(namespace), nothing, body=policy)

    @RestMethod
    def remove_scalable_topic_auto_scale_policy(self, namespace: str) -> Call[None]:
        """Removes the namespace's override, so that the nodes' settings apply again."""
        return Call("DELETE", _policy(namespace), nothing)

    @RestMethod
    def get_max_topics_per_namespace(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of scalable topics, None if the cluster's setting
        counts.
        """
        return Call("GET", home(namespace, _TOPICS), _LIMIT)

    @RestMethod
    def set_max_topics_per_namespace(self, namespace: str, limit: int) -> Call[None]:
        """Limits the scalable topics of the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _TOPICS), nothing, body=limit)

    @RestMethod
    def remove_max_topics_per_namespace(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _TOPICS), nothing)

    @RestMethod
    def get_max_subscriptions_per_topic(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of subscriptions of a topic, None if the cluster's
        setting counts.
        """
        return Call("GET", home(namespace, _SUBSCRIPTIONS), _LIMIT)

    @RestMethod
    def set_max_subscriptions_per_topic(self, namespace: str, limit: int) -> Call[None]:
        """Limits the subscriptions of each topic in the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _SUBSCRIPTIONS), nothing, body=limit)

    @RestMethod
    def remove_max_subscriptions_per_topic(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _SUBSCRIPTIONS), nothing)

    @RestMethod
    def get_max_consumers_per_subscription(self, namespace: str) -> Call[int | None]:
        """Returns the namespace's own limit of consumers of a subscription, None if the cluster's
        setting counts.
        """
        return Call("GET", home(namespace, _CONSUMERS), _LIMIT)

    @RestMethod
    def set_max_consumers_per_subscription(self, namespace: str, limit: int) -> Call[None]:
        """Limits the consumers of each subscription in the namespace. 0 allows any number."""
        return Call("POST", home(namespace, _CONSUMERS), nothing, body=limit)

    @RestMethod
    def remove_max_consumers_per_subscription(self, namespace: str) -> Call[None]:
        """Removes the namespace's limit, so that the cluster's setting counts again."""
        return Call("DELETE", home(namespace, _CONSUMERS), nothing)
