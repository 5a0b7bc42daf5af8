"""Scalable topics, their subscriptions and segments: PIP-468's client interface, and our own.

A topic is [topic://]tenant/namespace/name, a segment segment://tenant/namespace/name/descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from anabranch.admin.calls import (
    NAMES,
    NUMBER,
    PERMISSIONS,
    STRINGS,
    Call,
    Resource,
    RestMethod,
    TransportT,
    nothing,
    path,
)
from anabranch.admin.scalable_models import (
    AutoScaleOverride,
    DeadLetterPolicy,
    Layout,
    Segment,
    SegmentDetail,
    SubscriptionType,
    TopicStats,
    override,
)
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.subscriptions.subscription import DELIVERIES
from anabranch.core.topics.segment import parse_descriptor

Place = datetime | Literal["earliest", "latest"]  # of messages, by their time

_SCHEME: Final = "segment://"
_LAYOUT: Final = msgspec.json.Decoder(Layout).decode
_STATS: Final = msgspec.json.Decoder(TopicStats).decode
_SEGMENT: Final = msgspec.json.Decoder(SegmentDetail).decode
_LINEAGE: Final = msgspec.json.Decoder(list[Segment]).decode
_DEAD_LETTERS: Final = msgspec.json.Decoder(DeadLetterPolicy).decode


class ScalableTopics(Resource[TransportT]):
    """Operations on scalable topics, their subscriptions and single segments."""

    # --- topics, their layouts and policies -------------------------------------------------

    @RestMethod
    def list_scalable_topics(
        self, namespace: str, properties: Mapping[str, str] | None = None
    ) -> Call[list[str]]:
        """Full names of a namespace's scalable topics, or of those with all these properties."""
        home = names.parse_namespace(namespace).split("/")
        wanted = [f"{name}={value}" for name, value in (properties or {}).items()]
        query = {"property": wanted} if wanted else {}
        return Call("GET", path("admin", "v2", "scalable", *home), NAMES, query)

    @RestMethod
    def create_scalable_topic(
        self, topic: str, num_segments: int = 1, properties: Mapping[str, str] | None = None
    ) -> Call[None]:
        """Creates a topic whose segments have equal parts of the ring; returns when it is ready."""
        query = {"numInitialSegments": str(num_segments)}
        body = dict(properties) if properties else None
        return Call("PUT", _topic(topic), nothing, query, body)

    @RestMethod
    def get_metadata(self, topic: str) -> Call[Layout]:
        """The DAG of the topic's segments."""
        return Call("GET", _topic(topic), _LAYOUT)

    @RestMethod
    def get_stats(self, topic: str) -> Call[TopicStats]:
        """Segments with their load, subscriptions with consumers and backlogs, and auto-scaling."""
        return Call("GET", _topic(topic, "stats"), _STATS)

    @RestMethod
    def get_segment_stats(self, topic: str, segment_id: int) -> Call[SegmentDetail]:
        """The same of one segment."""
        return Call("GET", _topic(topic, "segments", segment_id, "stats"), _SEGMENT)

    @RestMethod
    def get_lineage(self, topic: str, segment_id: int) -> Call[list[Segment]]:
        """The segment with all that it descends from and all that descend from it, by id."""
        return Call("GET", _topic(topic, "segments", segment_id, "lineage"), _LINEAGE)

    @RestMethod
    def abort_transaction(self, topic: str, segment_id: int, producer_id: int) -> Call[None]:
        """Ends what a producer of Kafka has open in a sealed segment; the producer is kept out."""
        where = _topic(topic, "segments", segment_id, "abort-transaction", producer_id)
        return Call("POST", where, nothing)

    @RestMethod
    def restore_segment(self, topic: str, segment_id: int) -> Call[None]:
        """Goes on without a segment whose Kafka topic is gone; what it held is lost."""
        return Call("POST", _topic(topic, "segments", segment_id, "restore"), nothing)

    @RestMethod
    def delete_scalable_topic(self, topic: str, *, force: bool = False) -> Call[None]:
        """Deletes a topic with its subscriptions, segments and messages.

        `force`: also if it has consumers, which end.
        """
        return Call("DELETE", _topic(topic), nothing, {"force": "true"} if force else {})

    @RestMethod
    def split_segment(self, topic: str, segment_id: int) -> Call[None]:
        """Divides an active segment at its midpoint; returns when the children have taken over."""
        return Call("POST", _topic(topic, "split", segment_id), nothing)

    @RestMethod
    def merge_segments(self, topic: str, segment_id1: int, segment_id2: int) -> Call[None]:
        """Makes one segment of two active neighbours; returns when it has taken over."""
        return Call("POST", _topic(topic, "merge", segment_id1, segment_id2), nothing)

    @RestMethod
    def rebucket_segment(self, topic: str, segment_id: int, bucket_count: int) -> Call[None]:
        """Replaces an active segment by one of the same range with that many entry buckets."""
        query = {"bucketCount": str(bucket_count)}
        return Call("POST", _topic(topic, "rebucket", segment_id), nothing, query)

    @RestMethod
    def relocate_segment(self, topic: str, segment_id: int, off: Sequence[int] = ()) -> Call[None]:
        """Replaces an active segment by one of the same range on other brokers of Kafka.

        `off`: ids of those that it shall leave; else those that lead it, if others are there.
        """
        query = {"off": [str(each) for each in off]} if off else {}
        return Call("POST", _topic(topic, "relocate", segment_id), nothing, query)

    @RestMethod
    def get_properties(self, topic: str) -> Call[dict[str, str]]:
        """The topic's properties."""
        return Call("GET", _topic(topic, "properties"), STRINGS)

    @RestMethod
    def update_properties(self, topic: str, properties: Mapping[str, str]) -> Call[None]:
        """Sets these properties; the others stay."""
        return Call("PUT", _topic(topic, "properties"), nothing, body=dict(properties))

    @RestMethod
    def remove_property(self, topic: str, key: str) -> Call[None]:
        """Removes one property; nothing if it is not there."""
        return Call("DELETE", _topic(topic, "properties"), nothing, {"key": key})

    @RestMethod
    def get_auto_scale_policy(self, topic: str) -> Call[AutoScaleOverride]:
        """What the topic overrides of its namespace's policy; empty when that is nothing."""
        return Call("GET", _topic(topic, "autoScalePolicy"), override)

    @RestMethod
    def set_auto_scale_policy(self, topic: str, policy: AutoScaleOverride) -> Call[None]:
        """Replaces what the topic overrides, as a whole."""
        return Call("POST", _topic(topic, "autoScalePolicy"), nothing, body=policy)

    @RestMethod
    def remove_auto_scale_policy(self, topic: str) -> Call[None]:
        """Lets the namespace's policy apply to the topic again."""
        return Call("DELETE", _topic(topic, "autoScalePolicy"), nothing)

    @RestMethod
    def get_permissions(self, topic: str) -> Call[dict[str, list[str]]]:
        """What each role may do on a topic, by what is granted on it or on its namespace."""
        return Call("GET", _topic(topic, "permissions"), PERMISSIONS)

    @RestMethod
    def grant_permission(self, topic: str, role: str, actions: Sequence[str]) -> Call[None]:
        """Lets a role do this on a topic, besides what it may do on the namespace."""
        return Call("POST", _topic(topic, "permissions", role), nothing, body=list(actions))

    @RestMethod
    def revoke_permissions(self, topic: str, role: str) -> Call[None]:
        """Takes away what is granted to a role on a topic, not what is on its namespace."""
        return Call("DELETE", _topic(topic, "permissions", role), nothing)

    # --- subscriptions ------------------------------------------------------------------------

    @RestMethod
    def create_subscription(
        self,
        topic: str,
        subscription: str,
        kind: SubscriptionType = "STREAM",
        start: Place = "earliest",
    ) -> Call[None]:
        """Creates a subscription that begins at the messages of that time or later.

        One that is there is left as it is, whatever its kind and its place.
        """
        query = {"type": kind, **_place(start)}
        return Call("PUT", _subscription(topic, subscription), nothing, query)

    @RestMethod
    def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> Call[None]:
        """Deletes a subscription with its positions.

        `force`: also if it has consumers, which end.
        """
        query = {"force": "true"} if force else {}
        return Call("DELETE", _subscription(topic, subscription), nothing, query)

    @RestMethod
    def seek_subscription(self, topic: str, subscription: str, to: Place) -> Call[None]:
        """Goes on with the messages of that time or later; its consumers subscribe again."""
        return Call("POST", _subscription(topic, subscription, "seek"), nothing, _place(to))

    @RestMethod
    def skip_all(self, topic: str, subscription: str) -> Call[None]:
        """Leaves out all that is in the topic now; its consumers subscribe again."""
        return Call("POST", _subscription(topic, subscription, "skip-all"), nothing)

    @RestMethod
    def get_dead_letter_policy(
        self, topic: str, subscription: str
    ) -> Call[DeadLetterPolicy | None]:
        """Where a queue subscription puts what nobody could process; None: nowhere."""
        return Call("GET", _subscription(topic, subscription, "deadLetterPolicy"), _dead_letters)

    @RestMethod
    def set_dead_letter_policy(
        self,
        topic: str,
        subscription: str,
        max_deliveries: int = DELIVERIES,
        dead_letter_topic: str = "",
    ) -> Call[None]:
        """Lets a queue subscription put aside what was delivered so often in vain.

        Without a topic it is `{topic}-{subscription}-DLQ`; one that is not there is made.
        """
        body = {"maxDeliveries": max_deliveries, "deadLetterTopic": dead_letter_topic}
        return Call(
            "PUT", _subscription(topic, subscription, "deadLetterPolicy"), nothing, body=body
        )

    @RestMethod
    def remove_dead_letter_policy(self, topic: str, subscription: str) -> Call[None]:
        """Puts nothing aside any more: Kafka discards what was given out ten times in vain."""
        return Call("DELETE", _subscription(topic, subscription, "deadLetterPolicy"), nothing)

    # --- single segments -----------------------------------------------------------------------
    # Segments come and go by records of the log, so most of these only say whether something
    # holds; docs/rest.md has the cases.

    @RestMethod
    def create_segment(self, segment_topic: str, subscriptions: Sequence[str] = ()) -> Call[None]:
        """Checks that the segment is there, with these subscriptions."""
        return Call("PUT", _segment(segment_topic), nothing, body=list(subscriptions) or None)

    @RestMethod
    def terminate_segment(self, segment_topic: str) -> Call[None]:
        """Checks that the segment is sealed."""
        return Call("POST", _segment(segment_topic, "terminate"), nothing)

    @RestMethod
    def delete_segment(self, segment_topic: str, *, force: bool = False) -> Call[None]:
        """Deletes a sealed segment that all subscriptions have read; nothing if it is gone.

        `force` changes nothing: what is needed stays.
        """
        return Call("DELETE", _segment(segment_topic), nothing, {"force": "true"} if force else {})

    @RestMethod
    def create_segment_subscription(self, segment_topic: str, subscription: str) -> Call[None]:
        """Checks that the subscription is there."""
        return Call("PUT", _of_segment(segment_topic, subscription), nothing)

    @RestMethod
    def delete_segment_subscription(self, segment_topic: str, subscription: str) -> Call[None]:
        """Checks that the subscription is not there."""
        return Call("DELETE", _of_segment(segment_topic, subscription), nothing)

    @RestMethod
    def get_segment_backlog(self, segment_topic: str, subscription: str) -> Call[int]:
        """Records of the segment that the subscription has not acknowledged."""
        return Call("GET", _of_segment(segment_topic, subscription, "backlog"), NUMBER)

    @RestMethod
    def seek_segment_subscription(
        self, segment_topic: str, subscription: str, timestamp: int
    ) -> Call[None]:
        """Refused: one segment alone would be read out of the order of the DAG. Milliseconds."""
        query = {"timestamp": str(timestamp)}
        return Call("POST", _of_segment(segment_topic, subscription, "seek"), nothing, query)

    @RestMethod
    def skip_all_of_segment(self, segment_topic: str, subscription: str) -> Call[None]:
        """Checks that nothing is left to read."""
        return Call("POST", _of_segment(segment_topic, subscription, "skip-all"), nothing)


def _topic(topic: str, *more: str | int) -> str:
    """The path of a topic, or of something of it. Raises InvalidInputError."""
    return path("admin", "v2", "scalable", *names.parse_scalable_topic(topic).split("/"), *more)


def _subscription(topic: str, subscription: str, *more: str) -> str:
    return _topic(topic, "subscriptions", names.subscription(subscription), *more)


def _place(place: Place) -> dict[str, str]:
    """Raises InvalidInputError for a time without a zone, or before 1970."""
    if isinstance(place, str):
        return {"position": place}
    if place.tzinfo is None:
        raise InvalidInputError(f"the time {place} has no zone: give it one, such as timezone.utc")
    milliseconds = round(place.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidInputError(f"the time {place} is before 1970")
    return {"timestamp": str(milliseconds)}


def _dead_letters(body: bytes) -> DeadLetterPolicy | None:
    return _DEAD_LETTERS(body) if body else None


def _segment(segment_topic: str, *more: str) -> str:
    """Raises InvalidInputError."""
    parts = segment_topic.removeprefix(_SCHEME).split("/")
    if not segment_topic.startswith(_SCHEME) or len(parts) != 4:
        raise InvalidInputError(
            f"{segment_topic!r} is not of the form {_SCHEME}tenant/namespace/topic/descriptor"
        )
    tenant, namespace, topic, descriptor = parts
    names.scalable_topic(tenant, namespace, topic)
    parse_descriptor(descriptor)
    return path("admin", "v2", "segments", *parts, *more)


def _of_segment(segment_topic: str, subscription: str, *more: str) -> str:
    return _segment(segment_topic, "subscription", names.subscription(subscription), *more)
