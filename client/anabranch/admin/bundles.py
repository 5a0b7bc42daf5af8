"""Bundles of a namespace. A bundle is named by its range, such as 0x00000000_0x40000000."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, nothing, path
from anabranch.admin.namespaces import BundlesData, home
from anabranch.core import names

_POSITIONS: Final = "specified_positions_divide"


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


_BUNDLES: Final = msgspec.json.Decoder(BundlesData).decode
_OWNERSHIP: Final = msgspec.json.Decoder(NamespaceOwnership).decode
_HASHES: Final = msgspec.json.Decoder(TopicHashPositions).decode


class Bundles(Resource[TransportT]):
    """Operations on bundles."""

    @RestMethod
    def get_bundles(self, namespace: str) -> Call[BundlesData]:
        """Returns the ends of a namespace's bundles."""
        return Call("GET", home(namespace, "bundles"), _BUNDLES)

    @RestMethod
    def get_ownership(self, namespace: str) -> Call[NamespaceOwnership]:
        """Returns every bundle of a namespace with its owner and state."""
        return Call("GET", home(namespace, "bundles", "ownership"), _OWNERSHIP)

    @RestMethod
    def get_topic_hash_positions(
        self, namespace: str, bundle: str, topics: Sequence[str]
    ) -> Call[TopicHashPositions]:
        """Returns the ring positions of those topics that fall into the bundle.
        A broker must own it.
        """
        query: dict[str, str | list[str]] = {"topics": list(topics)}
        return Call("GET", home(namespace, bundle, "topicHashPositions"), _HASHES, query)

    @RestMethod
    def unload_bundle(
        self, namespace: str, bundle: str, destination_broker: str = ""
    ) -> Call[None]:
        """Takes a bundle from its owner. It does nothing where nobody owns the bundle.

        `destination_broker` (host:port), if given, owns it next.
        """
        query: dict[str, str | list[str]] = {}
        if destination_broker:
            query["destinationBroker"] = names.broker_id(destination_broker)
        return Call("PUT", home(namespace, bundle, "unload"), nothing, query)

    @RestMethod
    def unload_topic(self, topic: str, destination_broker: str = "") -> Call[None]:
        """Takes the bundle of a topic, `[domain://]tenant/namespace/name`, from its owner.

        `destination_broker` (host:port), if given, owns it next.
        """
        name, _ = names.parse_topic(topic)
        domain, _, rest = name.partition("://")
        parts = rest.split("/", 2)
        query: dict[str, str | list[str]] = {}
        if destination_broker:
            query["destinationBroker"] = names.broker_id(destination_broker)
        where = "scalable" if domain == names.SCALABLE_DOMAIN else domain
        return Call("PUT", path("admin", "v2", where, *parts, "unload"), nothing, query)

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
        return Call("PUT", home(namespace, bundle, "split"), nothing, query, body)

    @RestMethod
    def clear_bundle_backlog(
        self, namespace: str, bundle: str, subscription: str = ""
    ) -> Call[None]:
        """Skips all messages for every stream subscription, in every scalable topic of the bundle.

        `subscription`, if given, limits this to the subscriptions of that name.
        """
        parts = (names.subscription(subscription),) if subscription else ()
        return Call("POST", home(namespace, bundle, "clearBacklog", *parts), nothing)

    @RestMethod
    def unsubscribe_bundle(self, namespace: str, bundle: str, subscription: str) -> Call[None]:
        """Deletes the subscriptions of this name in every scalable topic of the bundle."""
        name = names.subscription(subscription)
        return Call("POST", home(namespace, bundle, "unsubscribe", name), nothing)
