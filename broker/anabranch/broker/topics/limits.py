"""What a topic may be asked to be: bounds that are checked before anything is logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from anabranch.broker.errors import PreconditionError
from anabranch.core.names import full_name
from anabranch.core.segment_topics import kafka_topic, segment_topic
from anabranch.core.segments import SegmentInfo
from anabranch.wire.framing import FRAME_BYTES_MAX

_PROPERTY_BYTES_MAX: Final = 64 * 1024  # all of a topic's, so that its record stays small
_LAYOUT_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024  # the frame has a head, and addresses
_INCARNATION: Final = 10**12  # longer than those to come
# Upper bounds of the encoded fields of a segment (binary/forms.py), each with its tag.
_SEGMENT_BYTES: Final = 48  # without the Kafka topic's name
_ASSIGNED_BYTES: Final = 28  # without the names of the segment and of its Kafka topic
_SEALED_BYTES: Final = 16
_LINK_BYTES: Final = 8
_BUCKET_BYTES: Final = 4
_END_BYTES: Final = 12


class Limits(msgspec.Struct, frozen=True):
    """What an operator decides about topics; `timeout_s`: how long a change is waited for."""

    timeout_s: float
    bucket_budget: int
    buckets_max: int
    enabled: bool = True


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises PreconditionError for what cannot be stored."""
    try:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    except UnicodeEncodeError as error:
        raise PreconditionError(
            f"the topic's properties hold half a character, {error.object!a:.200}, which cannot "
            "be stored: give whole Unicode characters"
        ) from None
    if size > _PROPERTY_BYTES_MAX:
        raise PreconditionError(
            f"the topic's properties have {size} bytes; at most {_PROPERTY_BYTES_MAX} are kept"
        )


def check_layout(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> None:
    """Raises PreconditionError for a layout that is too large to be told, or assigned, at once."""
    size = layout_bytes_max(prefix, name, parts)
    if size > _LAYOUT_BYTES_MAX:
        raise PreconditionError(
            f"the layout of {full_name(name)}, or the assignment of all of it to one consumer, "
            f"would have up to {size} bytes, and clients take {_LAYOUT_BYTES_MAX}: let it have "
            "fewer segments or entry buckets, or a shorter name"
        )


def fits_clients(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> bool:
    """Whether clients can be told the layout at once, and one consumer be assigned all of it."""
    return layout_bytes_max(prefix, name, parts) <= _LAYOUT_BYTES_MAX


def layout_bytes_max(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> int:
    """An upper bound of what the segments take of a message.

    That is the layout's or, where it is larger, the assignment of them all to one consumer.
    """
    parts = tuple(parts)
    if not parts:
        return 0
    last = max(parts, key=lambda part: part.segment_id)
    # All names are as long but for the segment's number, whose longest is the last one's.
    both = len(parts) * len(kafka_topic(prefix, name, _INCARNATION, last)) + sum(
        _BUCKET_BYTES * part.buckets + _END_BYTES * len(part.end_offsets) for part in parts
    )
    layout = len(parts) * _SEGMENT_BYTES + sum(
        (0 if part.is_active else _SEALED_BYTES)
        + _LINK_BYTES * (len(part.parent_ids) + len(part.child_ids))
        for part in parts
    )
    assignment = len(parts) * (_ASSIGNED_BYTES + len(segment_topic(name, last).encode()))
    return both + max(layout, assignment)
