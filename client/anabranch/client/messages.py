"""What producers take and give: settings and delivery results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from anabranch.core.errors import InvalidInputError

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
    of (object, SerializationContext).
    """

    linger_ms: float = 5.0
    compression: str = "none"
    buffer_messages_max: int = 100_000
    buffer_bytes_max: int = 64 * 1024 * 1024
    delivery_timeout_s: float = 120.0
    key_serializer: Any = None
    value_serializer: Any = None

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise InvalidInputError(
                f"compression {self.compression!r} is not one of {', '.join(_COMPRESSIONS)}"
            )
        for name in ("buffer_messages_max", "buffer_bytes_max", "delivery_timeout_s"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} must be greater than 0: {getattr(self, name)}")
        if not 0 <= self.linger_ms <= 60_000:
            raise InvalidInputError(f"linger_ms must be in [0, 60000]: {self.linger_ms}")

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
