"""Operations on single segments, each named segment://tenant/namespace/topic/descriptor.

Segments come and go by records of the log, so most of these only say whether something holds;
docs/rest.md has the cases.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.admin.calls import NUMBER, Call, nothing, path
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics.segment import parse_descriptor

_SCHEME = "segment://"


def _path(segment_topic: str, *more: str) -> str:
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


def _subscription(segment_topic: str, subscription: str, *more: str) -> str:
    return _path(segment_topic, "subscription", names.subscription(subscription), *more)


def create_segment(segment_topic: str, subscriptions: Sequence[str] = ()) -> Call[None]:
    """Checks that the segment is there, with these subscriptions."""
    return Call("PUT", _path(segment_topic), nothing, body=list(subscriptions) or None)


def terminate_segment(segment_topic: str) -> Call[None]:
    """Checks that the segment is sealed."""
    return Call("POST", _path(segment_topic, "terminate"), nothing)


def delete_segment(segment_topic: str, *, force: bool = False) -> Call[None]:
    """Deletes a sealed segment that all subscriptions have read; nothing if it is gone.

    `force` changes nothing: what is needed stays.
    """
    return Call("DELETE", _path(segment_topic), nothing, {"force": "true"} if force else {})


def create_segment_subscription(segment_topic: str, subscription: str) -> Call[None]:
    """Checks that the subscription is there."""
    return Call("PUT", _subscription(segment_topic, subscription), nothing)


def delete_segment_subscription(segment_topic: str, subscription: str) -> Call[None]:
    """Checks that the subscription is not there."""
    return Call("DELETE", _subscription(segment_topic, subscription), nothing)


def get_segment_backlog(segment_topic: str, subscription: str) -> Call[int]:
    """Records of the segment that the subscription has not acknowledged."""
    return Call("GET", _subscription(segment_topic, subscription, "backlog"), NUMBER)


def seek_segment_subscription(segment_topic: str, subscription: str, timestamp: int) -> Call[None]:
    """Refused: one segment alone would be read out of the order of the DAG. Milliseconds."""
    query: dict[str, str | list[str]] = {"timestamp": str(timestamp)}
    return Call("POST", _subscription(segment_topic, subscription, "seek"), nothing, query)


def skip_all_of_segment(segment_topic: str, subscription: str) -> Call[None]:
    """Checks that nothing is left to read."""
    return Call("POST", _subscription(segment_topic, subscription, "skip-all"), nothing)
