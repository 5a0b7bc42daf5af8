"""Namespaces: `/admin/v2/namespaces`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from anabranch.admin.calls import (
    NAMES,
    Answer,
    Async,
    AsyncGroup,
    Call,
    Group,
    Sync,
    nothing,
    path,
)
from anabranch.admin.policies import AutoScaleOverride, override
from anabranch.core import names


class BundlesData(Answer, frozen=True):
    """How a namespace is divided: the ends of its bundles, ascending, and how many there are."""

    boundaries: list[str]
    num_bundles: int


class Policies(Answer, frozen=True):
    """A namespace's policies."""

    bundles: BundlesData
    replication_clusters: list[str] = msgspec.field(name="replication_clusters")
    scalable_topic_auto_scale_policy: AutoScaleOverride = {}  # what it overrides


_POLICIES: Final = msgspec.json.Decoder(Policies).decode


def home(namespace: str, *more: str | int) -> str:
    """The path of a namespace, or of something in it. Raises InvalidInputError."""
    return path("admin", "v2", "namespaces", *names.parse_namespace(namespace).split("/"), *more)


def get_namespaces(tenant: str) -> Call[list[str]]:
    """Names, tenant/namespace, of a tenant's namespaces."""
    return Call("GET", path("admin", "v2", "namespaces", names.tenant(tenant)), NAMES)


def get_policies(namespace: str) -> Call[Policies]:
    """A namespace's policies."""
    return Call("GET", home(namespace), _POLICIES)


def create_namespace(namespace: str, num_bundles: int | None = None) -> Call[None]:
    """Creates a namespace; its bundles are of equal size, as many as the nodes' setting if None."""
    body: dict[str, Any] = {} if num_bundles is None else {"bundles": {"numBundles": num_bundles}}
    return Call("PUT", home(namespace), nothing, body=body)


def delete_namespace(namespace: str) -> Call[None]:
    """Unloads a namespace's bundles and deletes it; refused while it has scalable topics."""
    return Call("DELETE", home(namespace), nothing)


def unload(namespace: str) -> Call[None]:
    """Takes every bundle from its owner; the next look-ups assign them."""
    return Call("PUT", home(namespace, "unload"), nothing)


def _policy(namespace: str) -> str:
    return home(namespace, "scalableTopicAutoScalePolicy")


def get_scalable_topic_auto_scale_policy(namespace: str) -> Call[AutoScaleOverride]:
    """What the namespace overrides of the nodes' settings; empty when that is nothing."""
    return Call("GET", _policy(namespace), override)


def set_scalable_topic_auto_scale_policy(namespace: str, policy: AutoScaleOverride) -> Call[None]:
    """Replaces what the namespace overrides, as a whole."""
    return Call("POST", _policy(namespace), nothing, body=policy)


def remove_scalable_topic_auto_scale_policy(namespace: str) -> Call[None]:
    """Lets the nodes' settings apply to the namespace again."""
    return Call("DELETE", _policy(namespace), nothing)


class Namespaces(Group):
    """Operations on namespaces."""

    get_namespaces = Sync(get_namespaces)
    get_policies = Sync(get_policies)
    create_namespace = Sync(create_namespace)
    delete_namespace = Sync(delete_namespace)
    unload = Sync(unload)
    get_scalable_topic_auto_scale_policy = Sync(get_scalable_topic_auto_scale_policy)
    set_scalable_topic_auto_scale_policy = Sync(set_scalable_topic_auto_scale_policy)
    remove_scalable_topic_auto_scale_policy = Sync(remove_scalable_topic_auto_scale_policy)


class AsyncNamespaces(AsyncGroup):
    """Operations on namespaces, as coroutines."""

    get_namespaces = Async(get_namespaces)
    get_policies = Async(get_policies)
    create_namespace = Async(create_namespace)
    delete_namespace = Async(delete_namespace)
    unload = Async(unload)
    get_scalable_topic_auto_scale_policy = Async(get_scalable_topic_auto_scale_policy)
    set_scalable_topic_auto_scale_policy = Async(set_scalable_topic_auto_scale_policy)
    remove_scalable_topic_auto_scale_policy = Async(remove_scalable_topic_auto_scale_policy)
