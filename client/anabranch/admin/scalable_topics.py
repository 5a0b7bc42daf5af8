"""Scalable topics, their subscriptions and segments: PIP-468's client interface, and additions to
it.

A topic is [topic://]tenant/namespace/name, a segment segment://tenant/namespace/name/descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from anabranch.admin.calls import Call, Resource, RestMethod, TransportT, path
from anabranch.admin.scalable_models import (
    AdoptionSurvey,
    AutoScaleOverride,
    DeadLetterPolicy,
    GivenBack,
    Layout,
    SegmentDetail,
    SubscriptionType,
    TopicStats,
)
from anabranch.core import names
from anabranch.core.entities.segment import parse_descriptor
from anabranch.core.errors import InvalidInputError

Place = datetime | Literal["earliest", "latest"]  # the first messages by time


@dataclass(frozen=True, slots=True)
class FromGroup:
    """A group of Kafka's that has no members, whose positions a subscription takes over.

    `missing`: the beginning in partitions for which it has none; it is refused otherwise.
    """

    group: str
    missing: Literal["earliest", "latest", "refuse"] = "refuse"


_SCHEME: Final = "segment://"


class ScalableTopics(Resource[TransportT]):
    """Operations on scalable topics, their subscriptions and single segments."""

    # --- topics, their layouts and policies -------------------------------------------------

    @RestMethod
    def list_scalable_topics(
        self, namespace: str, properties: Mapping[str, str] | None = None
    ) -> Call[list[str]]:
        """Returns the full names of a namespace's scalable topics, only those with all of
        `properties` if given.
        """
        home = names.parse_namespace(namespace).split("/")
        wanted = [f"{name}={value}" for name, value in (properties or {}).items()]
        query = {"property": wanted} if wanted else {}
        return Call("GET", path("admin", "v2", "scalable", *home), query)

    @RestMethod
    def create_scalable_topic(
        self, topic: str, num_segments: int = 1, properties: Mapping[str, str] | None = None
    ) -> Call[None]:
        """Creates a topic with `num_segments` equal parts of the ring.
        It returns when the topic is ready.
        """
        query = {"numInitialSegments": str(num_segments)}
        body = dict(properties) if properties else None
        return Call("PUT", _topic(topic), query, body)

    @RestMethod
    def survey_kafka_topic(self, topic: str, kafka_topic: str) -> Call[AdoptionSurvey]:
        """Returns what an adoption of the Kafka topic as this topic would meet.

        Nothing in Kafka is changed.
        """
        return Call("GET", _topic(topic, "adopt"), {"kafkaTopic": kafka_topic})

    @RestMethod
    def adopt_kafka_topic(
        self, topic: str, kafka_topic: str, partitioner: str = "auto"
    ) -> Call[None]:
        """Lets a Kafka topic become a scalable topic where it lies.

        `partitioner` is the way in which its writers find a key's partition, "auto" for the one
        that the survey finds. `prepare_segments` cuts it over, and `release_kafka_topic` undoes it
        before that.
        """
        query = {"kafkaTopic": kafka_topic, "partitioner": partitioner}
        return Call("POST", _topic(topic, "adopt"), query)

    @RestMethod
    def release_kafka_topic(self, topic: str) -> Call[None]:
        """Forgets an adopted topic that was not cut over, or was given back and has nothing else.
        Nothing in Kafka is changed.
        """
        return Call("POST", _topic(topic, "release"))

    @RestMethod
    def give_back_kafka_topic(self, topic: str, *, leave_middle: bool = False) -> Call[GivenBack]:
        """Opens the Kafka topic of an adopted topic that was cut over, in place of all segments.

        It goes on at its old ends, and this client's producers and consumers follow. Messages
        between stay in the segments. If there are any, `leave_middle` must say that they may.
        """
        query = {"leaveMiddle": "true"} if leave_middle else {}
        return Call("POST", _topic(topic, "give-back"), query)

    @RestMethod
    def get_metadata(self, topic: str) -> Call[Layout]:
        """Returns the DAG of the topic's segments."""
        return Call("GET", _topic(topic))

    @RestMethod
    def get_stats(self, topic: str) -> Call[TopicStats]:
        """Returns segments with their load, subscriptions with consumers and backlogs, and the
        auto-scaling.
        """
        return Call("GET", _topic(topic, "stats"))

    @RestMethod
    def get_segment_stats(self, topic: str, segment_id: int) -> Call[SegmentDetail]:
        """Returns the statistics of one segment."""
        return Call("GET", _topic(topic, "segments", segment_id, "stats"))

    @RestMethod
    def restore_segment(self, topic: str, segment_id: int) -> Call[None]:
        """Lets the topic go on without a segment whose Kafka topic is gone.
        The messages in that segment are lost.
        """
        return Call("POST", _topic(topic, "segments", segment_id, "restore"))

    @RestMethod
    def delete_scalable_topic(self, topic: str, *, force: bool = False) -> Call[None]:
        """Deletes a topic with its subscriptions, segments and messages.

        `force` deletes it also if it has consumers, and ends them.
        """
        return Call("DELETE", _topic(topic), {"force": "true"} if force else {})

    @RestMethod
    def split_segment(self, topic: str, segment_id: int) -> Call[None]:
        """Divides an active segment at its midpoint.
        It returns when the children have taken over.
        """
        return Call("POST", _topic(topic, "split", segment_id))

    @RestMethod
    def merge_segments(self, topic: str, segment_id1: int, segment_id2: int) -> Call[None]:
        """Merges two active neighbours into one segment.
        It returns when that one has taken over.
        """
        return Call("POST", _topic(topic, "merge", segment_id1, segment_id2))

    @RestMethod
    def rebucket_segment(self, topic: str, segment_id: int, bucket_count: int) -> Call[None]:
        """Replaces an active segment by one of the same range with `bucket_count` entry buckets."""
        query = {"bucketCount": str(bucket_count)}
        return Call("POST", _topic(topic, "rebucket", segment_id), query)

    @RestMethod
    def prepare_segments(
        self,
        topic: str,
        segment_count: int,
        bucket_count: int | None = None,
        *,
        keep: bool = False,
    ) -> Call[None]:
        """Makes `segment_count` active segments of equal size, up or down, in one operation.

        `bucket_count` is the number of entry buckets of each; without it new segments share out
        the buckets of those that they replace. `keep`: retention never takes the adopted Kafka
        topic that this cuts over out of the layout. It returns when they have taken over, and does
        nothing if they are there.
        """
        query = {"segmentCount": str(segment_count)}
        if keep:
            query["keep"] = "true"
        if bucket_count is not None:
            query["bucketCount"] = str(bucket_count)
        return Call("POST", _topic(topic, "prepare"), query)

    @RestMethod
    def get_properties(self, topic: str) -> Call[dict[str, str]]:
        """Returns the topic's properties."""
        return Call("GET", _topic(topic, "properties"))

    @RestMethod
    def update_properties(self, topic: str, properties: Mapping[str, str]) -> Call[None]:
        """Sets these properties. The others stay."""
        return Call("PUT", _topic(topic, "properties"), body=dict(properties))

    @RestMethod
    def remove_property(self, topic: str, key: str) -> Call[None]:
        """Removes one property. It does nothing if the property is not there."""
        return Call("DELETE", _topic(topic, "properties"), {"key": key})

    @RestMethod
    def get_auto_scale_policy(self, topic: str) -> Call[AutoScaleOverride]:
        """Returns the fields that the topic overrides of its namespace's policy, empty for none."""
        return Call("GET", _topic(topic, "autoScalePolicy"))

    @RestMethod
    def set_auto_scale_policy(self, topic: str, policy: AutoScaleOverride) -> Call[None]:
        """Replaces the topic's override as a whole."""
        return Call("POST", _topic(topic, "autoScalePolicy"), body=policy)

    @RestMethod
    def remove_auto_scale_policy(self, topic: str) -> Call[None]:
        """Removes the topic's override, so that the namespace's policy applies again."""
        return Call("DELETE", _topic(topic, "autoScalePolicy"))

    @RestMethod
    def get_permissions(self, topic: str) -> Call[dict[str, list[str]]]:
        """Returns the actions of each role on a topic, by grants on it or on its namespace."""
        return Call("GET", _topic(topic, "permissions"))

    @RestMethod
    def grant_permission(self, topic: str, role: str, actions: Sequence[str]) -> Call[None]:
        """Grants a role these actions on a topic, besides its grants on the namespace."""
        return Call("POST", _topic(topic, "permissions", role), body=list(actions))

    @RestMethod
    def revoke_permissions(self, topic: str, role: str) -> Call[None]:
        """Revokes the grants to a role on a topic, but not those on its namespace."""
        return Call("DELETE", _topic(topic, "permissions", role))

    # --- subscriptions ------------------------------------------------------------------------

    @RestMethod
    def create_subscription(
        self,
        topic: str,
        subscription: str,
        kind: SubscriptionType = "STREAM",
        start: Place | FromGroup = "earliest",
    ) -> Call[None]:
        """Creates a subscription that begins with the messages of the time `start` or later, or
        where a group of Kafka's has come to in an adopted topic.

        A subscription that exists stays unchanged, also if its kind or its place differs.
        """
        query = {"type": kind, **_start(start)}
        return Call("PUT", _subscription(topic, subscription), query)

    @RestMethod
    def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> Call[None]:
        """Deletes a subscription with its positions.

        `force` deletes it also if it has consumers, and ends them.
        """
        query = {"force": "true"} if force else {}
        return Call("DELETE", _subscription(topic, subscription), query)

    @RestMethod
    def seek_subscription(self, topic: str, subscription: str, to: Place) -> Call[None]:
        """Moves a subscription to the messages of the time `to` or later.
        Its consumers subscribe again.
        """
        return Call("POST", _subscription(topic, subscription, "seek"), _place(to))

    @RestMethod
    def skip_all(self, topic: str, subscription: str) -> Call[None]:
        """Moves a subscription behind all messages that are in the topic now.
        Its consumers subscribe again.
        """
        return Call("POST", _subscription(topic, subscription, "skip-all"))

    @RestMethod
    def get_dead_letter_policy(
        self, topic: str, subscription: str
    ) -> Call[DeadLetterPolicy | None]:
        """Returns the dead-letter policy of a subscription, None if it has none."""
        return Call("GET", _subscription(topic, subscription, "deadLetterPolicy"))

    @RestMethod
    def set_dead_letter_policy(
        self,
        topic: str,
        subscription: str,
        max_deliveries: int | None = None,
        dead_letter_topic: str = "",
    ) -> Call[None]:
        """Lets a subscription put messages aside that its consumers cannot process: a queue after
        `max_deliveries` failed deliveries, 5 if left. A stream's consumers count attempts.

        The default topic is `{topic}-{subscription}-DLQ`. A topic that does not exist is created.
        """
        body = {"maxDeliveries": max_deliveries, "deadLetterTopic": dead_letter_topic}
        return Call("PUT", _subscription(topic, subscription, "deadLetterPolicy"), body=body)

    @RestMethod
    def remove_dead_letter_policy(self, topic: str, subscription: str) -> Call[None]:
        """Ends the putting aside. Kafka then discards a queue's message after ten deliveries."""
        return Call("DELETE", _subscription(topic, subscription, "deadLetterPolicy"))

    # --- single segments -----------------------------------------------------------------------
    # Segments come and go by records of the log, so nodes refuse most of these with the way to do
    # it on the topic; docs/rest.md has the cases.

    @RestMethod
    def create_segment(self, segment_topic: str, subscriptions: Sequence[str] = ()) -> Call[None]:
        """Always refused: creating the topic, split, merge and rebucket make segments."""
        return Call("PUT", _segment(segment_topic), body=list(subscriptions) or None)

    @RestMethod
    def terminate_segment(self, segment_topic: str) -> Call[None]:
        """Always refused: a split, merge or rebucket seals it."""
        return Call("POST", _segment(segment_topic, "terminate"))

    @RestMethod
    def delete_segment(self, segment_topic: str, *, force: bool = False) -> Call[None]:
        """Deletes a sealed segment that all subscriptions have read. It does nothing if the segment
        is gone.

        `force` has no effect: a segment that is needed stays.
        """
        return Call("DELETE", _segment(segment_topic), {"force": "true"} if force else {})

    @RestMethod
    def create_segment_subscription(self, segment_topic: str, subscription: str) -> Call[None]:
        """Always refused: create it on the topic."""
        return Call("PUT", _of_segment(segment_topic, subscription))

    @RestMethod
    def delete_segment_subscription(self, segment_topic: str, subscription: str) -> Call[None]:
        """Always refused: delete it on the topic."""
        return Call("DELETE", _of_segment(segment_topic, subscription))

    @RestMethod
    def get_segment_backlog(self, segment_topic: str, subscription: str) -> Call[int]:
        """Returns the number of records in the segment that the subscription has not
        acknowledged.
        """
        return Call("GET", _of_segment(segment_topic, subscription, "backlog"))

    @RestMethod
    def seek_segment_subscription(
        self, segment_topic: str, subscription: str, timestamp: int
    ) -> Call[None]:
        """Always refused, because one segment alone would be read out of the DAG's order.
        `timestamp` is in milliseconds.
        """
        query = {"timestamp": str(timestamp)}
        return Call("POST", _of_segment(segment_topic, subscription, "seek"), query)

    @RestMethod
    def skip_all_of_segment(self, segment_topic: str, subscription: str) -> Call[None]:
        """Always refused: skip all on the topic."""
        return Call("POST", _of_segment(segment_topic, subscription, "skip-all"))


def _topic(topic: str, *more: str | int) -> str:
    """Returns the path of a topic, or of something of it. Raises InvalidInputError."""
    return path("admin", "v2", "scalable", *names.parse_scalable_topic(topic).split("/"), *more)


def _subscription(topic: str, subscription: str, *more: str) -> str:
    return _topic(topic, "subscriptions", names.subscription(subscription), *more)


def _start(start: Place | FromGroup) -> dict[str, str]:
    if isinstance(start, FromGroup):
        return {"fromGroup": start.group, "missing": start.missing}
    return _place(start)


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
