"""Operations on scalable topics, their layouts and policies. A topic is [topic://]tenant/ns/name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.admin.calls import NAMES, STRINGS, Call, nothing, path
from anabranch.admin.policies import AutoScaleOverride, override
from anabranch.admin.scalable_models import Layout, SegmentDetail, TopicStats
from anabranch.core import names

_LAYOUT: Final = msgspec.json.Decoder(Layout).decode
_STATS: Final = msgspec.json.Decoder(TopicStats).decode
_SEGMENT: Final = msgspec.json.Decoder(SegmentDetail).decode


def topic_path(topic: str, *more: str | int) -> str:
    """The path of a topic, or of something of it. Raises InvalidInputError."""
    return path("admin", "v2", "scalable", *names.parse_scalable_topic(topic).split("/"), *more)


def list_scalable_topics(
    namespace: str, properties: Mapping[str, str] | None = None
) -> Call[list[str]]:
    """Full names of a namespace's scalable topics, or of those that have all these properties."""
    home = names.parse_namespace(namespace).split("/")
    wanted = [f"{name}={value}" for name, value in (properties or {}).items()]
    query: dict[str, str | list[str]] = {"property": wanted} if wanted else {}
    return Call("GET", path("admin", "v2", "scalable", *home), NAMES, query)


def create_scalable_topic(
    topic: str, num_segments: int = 1, properties: Mapping[str, str] | None = None
) -> Call[None]:
    """Creates a topic whose segments have equal parts of the ring; returns when it is ready."""
    query: dict[str, str | list[str]] = {"numInitialSegments": str(num_segments)}
    body = dict(properties) if properties else None
    return Call("PUT", topic_path(topic), nothing, query, body)


def get_metadata(topic: str) -> Call[Layout]:
    """The DAG of the topic's segments."""
    return Call("GET", topic_path(topic), _LAYOUT)


def get_stats(topic: str) -> Call[TopicStats]:
    """Segments with their load, subscriptions with consumers and backlogs, and auto-scaling."""
    return Call("GET", topic_path(topic, "stats"), _STATS)


def get_segment_stats(topic: str, segment_id: int) -> Call[SegmentDetail]:
    """The same of one segment."""
    return Call("GET", topic_path(topic, "segments", segment_id, "stats"), _SEGMENT)


def delete_scalable_topic(topic: str) -> Call[None]:
    """Deletes the topic with its subscriptions, segments and messages; its consumers are told."""
    return Call("DELETE", topic_path(topic), nothing)


def split_segment(topic: str, segment_id: int) -> Call[None]:
    """Divides an active segment at its midpoint; returns when the children have taken over."""
    return Call("POST", topic_path(topic, "split", segment_id), nothing)


def merge_segments(topic: str, segment_id1: int, segment_id2: int) -> Call[None]:
    """Makes one segment of two active neighbours; returns when it has taken over."""
    return Call("POST", topic_path(topic, "merge", segment_id1, segment_id2), nothing)


def rebucket_segment(topic: str, segment_id: int, bucket_count: int) -> Call[None]:
    """Replaces an active segment by one of the same range with that many entry buckets."""
    query: dict[str, str | list[str]] = {"bucketCount": str(bucket_count)}
    return Call("POST", topic_path(topic, "rebucket", segment_id), nothing, query)


def get_properties(topic: str) -> Call[dict[str, str]]:
    """The topic's properties."""
    return Call("GET", topic_path(topic, "properties"), STRINGS)


def update_properties(topic: str, properties: Mapping[str, str]) -> Call[None]:
    """Sets these properties; the others stay."""
    return Call("PUT", topic_path(topic, "properties"), nothing, body=dict(properties))


def remove_property(topic: str, key: str) -> Call[None]:
    """Removes one property; nothing if it is not there."""
    return Call("DELETE", topic_path(topic, "properties"), nothing, {"key": key})


def get_auto_scale_policy(topic: str) -> Call[AutoScaleOverride]:
    """What the topic overrides of its namespace's policy; empty when that is nothing."""
    return Call("GET", topic_path(topic, "autoScalePolicy"), override)


def set_auto_scale_policy(topic: str, policy: AutoScaleOverride) -> Call[None]:
    """Replaces what the topic overrides, as a whole."""
    return Call("POST", topic_path(topic, "autoScalePolicy"), nothing, body=policy)


def remove_auto_scale_policy(topic: str) -> Call[None]:
    """Lets the namespace's policy apply to the topic again."""
    return Call("DELETE", topic_path(topic, "autoScalePolicy"), nothing)
