"""What producers take and give: headers, event times and delivery results."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.segment_topics import FUTURE_MS_MAX

# The header by which a producer finds its own records again in a sealed segment; consumers need
# not show it.
PRODUCER_HEADER = "ab"

Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]


class DeliveryResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message is: offset in the bucket, which is a partition of the segment's Kafka topic.

    `timestamp_ms`: its event time, or when it was appended. Offset and time are -1 for a message
    whose acknowledgement was lost and that a sealed segment was found to hold all the same.
    """

    topic: str
    segment_id: int
    bucket: int
    offset: int
    timestamp_ms: int


OnDelivery = Callable[[DeliveryResult | None, Exception | None], None]


def event_time(given: Any) -> int:
    """An event time as Kafka takes it: milliseconds since 1970, 0 for that of sending.

    Raises InvalidInputError. That it is not older than what the topic keeps, Kafka alone knows.

    >>> event_time(1_700_000_000_000)
    1700000000000
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        found = operator.index(given)
    except TypeError:
        raise InvalidInputError(
            f"event_time_ms is a number of milliseconds since 1970, not {given!r}"
        ) from None
    ahead_ms = found - time.time() * 1000
    if found < 0 or ahead_ms > FUTURE_MS_MAX:
        raise InvalidInputError(
            f"event_time_ms is in milliseconds since 1970, and at most "
            f"{FUTURE_MS_MAX // 60_000} minutes in the future: {found}"
        )
    return found


def header_pairs(headers: Headers | None) -> list[tuple[str, bytes]]:
    """Headers as they are appended. Raises InvalidInputError.

    >>> header_pairs({"a": "b"})
    [('a', b'b')]
    """
    items: Any = headers.items() if isinstance(headers, Mapping) else headers or ()
    pairs = []
    try:
        for name, content in items:
            data = content.encode() if isinstance(content, str) else content
            if not isinstance(name, str) or name == PRODUCER_HEADER or not isinstance(data, bytes):
                raise InvalidInputError(
                    f"header {name!r} must have a str other than {PRODUCER_HEADER!r} for its name, "
                    f"and bytes or str: it has a {type(content).__name__}"
                )
            name.encode()
            pairs.append((name, data))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a header cannot be encoded: {error}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"headers are a mapping, or pairs of name and content: {headers!r:.100}"
        ) from None
    return pairs
