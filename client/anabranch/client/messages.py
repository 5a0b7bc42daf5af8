"""What producers take and give: settings and delivery results."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from anabranch.client.bounds import check_positive, number
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

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer works. Raises InvalidInputError.

    `linger_ms`: how long a batch waits for company. `buffer_messages_max`, `buffer_bytes_max`: what
    may be under way or held, of values. `delivery_timeout_s`: how long Kafka may make no progress
    before what is under way is given up. Serializers are those of confluent-kafka, or any callable
    of (object, SerializationContext). `encrypt`: a callable of a serialized value that gives the
    bytes to be stored in its place; each message is then a batch of its own. `count_batches`: for
    `Producer.stats`; each bucket then has a librdkafka producer of its own.
    """

    linger_ms: float = 5.0
    compression: str = "none"
    buffer_messages_max: int = 100_000
    buffer_bytes_max: int = 64 * 1024 * 1024
    delivery_timeout_s: float = 120.0
    key_serializer: Any = None
    value_serializer: Any = None
    encrypt: Any = None
    count_batches: bool = False

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise InvalidInputError(
                f"compression {self.compression!r} is not one of {', '.join(_COMPRESSIONS)}"
            )
        for name in ("buffer_messages_max", "buffer_bytes_max", "delivery_timeout_s"):
            check_positive(name, getattr(self, name))
        if not 0 <= number("linger_ms", self.linger_ms) <= 60_000:
            raise InvalidInputError(f"linger_ms must be in [0, 60000]: {self.linger_ms}")
        for name in ("key_serializer", "value_serializer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise InvalidInputError(
                    f"{name} must be callable with (object, context): {getattr(self, name)!r}"
                )
        if self.encrypt is not None and not callable(self.encrypt):
            raise InvalidInputError(
                f"encrypt must be callable with the bytes of a value: {type(self.encrypt).__name__}"
            )

    @classmethod
    def of(cls, base: Self | None, changes: Mapping[str, Any]) -> Self:
        """The settings given, or the defaults, with changes. Raises InvalidInputError."""
        unknown = sorted(set(changes) - set(cls.__struct_fields__))
        if unknown:
            raise InvalidInputError(
                f"a producer has no setting {', '.join(unknown)}: it has "
                f"{', '.join(cls.__struct_fields__)}"
            )
        values = (
            {} if base is None else {name: getattr(base, name) for name in cls.__struct_fields__}
        )
        return cls(**{**values, **changes})


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
