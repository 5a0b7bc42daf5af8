"""Bundles of a namespace. A bundle is named by its range, such as 0x00000000_0x40000000."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Async, AsyncGroup, Call, Group, Sync, nothing
from anabranch.admin.namespaces import BundlesData, home
from anabranch.core import names

_POSITIONS: Final = "specified_positions_divide"


class BundleOwnership(Answer, frozen=True):
    """One bundle and what the log says of it."""

    bundle: str
    state: str  # FREE, ASSIGNING, OWNED, RELEASING or SPLITTING
    broker: str  # the owner; while it moves, the next one; else empty
    source: str  # while it moves, the broker that gives it up; else empty
    version: int  # how many moves the log has accepted for it
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


_BUNDLES: Final = msgspec.json.Decoder(BundlesData).decode
_OWNERSHIP: Final = msgspec.json.Decoder(NamespaceOwnership).decode
_HASHES: Final = msgspec.json.Decoder(TopicHashPositions).decode


def get_bundles(namespace: str) -> Call[BundlesData]:
    """The ends of a namespace's bundles."""
    return Call("GET", home(namespace, "bundles"), _BUNDLES)


def get_ownership(namespace: str) -> Call[NamespaceOwnership]:
    """Every bundle with its owner and state."""
    return Call("GET", home(namespace, "bundles", "ownership"), _OWNERSHIP)


def get_topic_hash_positions(
    namespace: str, bundle: str, topics: Sequence[str]
) -> Call[TopicHashPositions]:
    """Where those topics lie that fall into the bundle, which somebody must own."""
    query: dict[str, str | list[str]] = {"topics": list(topics)}
    return Call("GET", home(namespace, bundle, "topicHashPositions"), _HASHES, query)


def unload_bundle(namespace: str, bundle: str, destination_broker: str = "") -> Call[None]:
    """Takes a bundle from its owner; `destination_broker` (host:port) shall own it next, if given.

    Nothing where nobody owns it.
    """
    query: dict[str, str | list[str]] = {}
    if destination_broker:
        query["destinationBroker"] = names.broker_id(destination_broker)
    return Call("PUT", home(namespace, bundle, "unload"), nothing, query)


def split_bundle(
    namespace: str, bundle: str, positions: Sequence[int] = (), *, unload: bool = False
) -> Call[None]:
    """Divides a bundle in halves, or at `positions`, ascending; `unload`s the parts too."""
    query: dict[str, str | list[str]] = {"unload": "true"} if unload else {}
    body = None
    if positions:
        query["splitAlgorithmName"] = _POSITIONS
        body = list(positions)
    return Call("PUT", home(namespace, bundle, "split"), nothing, query, body)


def clear_bundle_backlog(namespace: str, bundle: str, subscription: str = "") -> Call[None]:
    """Skips all there is, in every scalable topic of the bundle, for every stream.

    `subscription`: only for those of this name.
    """
    parts = (names.subscription(subscription),) if subscription else ()
    return Call("POST", home(namespace, bundle, "clearBacklog", *parts), nothing)


def unsubscribe_bundle(namespace: str, bundle: str, subscription: str) -> Call[None]:
    """Deletes the subscriptions of this name in every scalable topic of the bundle."""
    name = names.subscription(subscription)
    return Call("POST", home(namespace, bundle, "unsubscribe", name), nothing)


class Bundles(Group):
    """Operations on bundles."""

    get_bundles = Sync(get_bundles)
    get_ownership = Sync(get_ownership)
    get_topic_hash_positions = Sync(get_topic_hash_positions)
    unload_bundle = Sync(unload_bundle)
    split_bundle = Sync(split_bundle)
    clear_bundle_backlog = Sync(clear_bundle_backlog)
    unsubscribe_bundle = Sync(unsubscribe_bundle)


class AsyncBundles(AsyncGroup):
    """Operations on bundles, as coroutines."""

    get_bundles = Async(get_bundles)
    get_ownership = Async(get_ownership)
    get_topic_hash_positions = Async(get_topic_hash_positions)
    unload_bundle = Async(unload_bundle)
    split_bundle = Async(split_bundle)
    clear_bundle_backlog = Async(clear_bundle_backlog)
    unsubscribe_bundle = Async(unsubscribe_bundle)
