"""What Kafka itself holds of a scalable topic, read as any client of Kafka would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import TopicPartition

from anabranch.broker.demo.messages import Arrival, Message
from anabranch.channel.connection import KafkaConnection, close_consumer
from anabranch.core.errors import AnabranchError

_SECONDS_MAX: Final = 10.0
_CLOSE_SECONDS_MAX: Final = 2.0
_BATCH_MAX: Final = 1_000


class UnreadableError(AnabranchError):
    """Kafka did not give what it says it has."""


def stored(connection: KafkaConnection, stats: Mapping[str, Any]) -> list[Arrival]:
    """Every message in every segment's Kafka topic, segment by segment, parents first.

    `stats`: the body of `GET .../stats`. In this order each key's messages are in theirs, since a
    child has a greater id than its parents. Raises UnreadableError.
    """
    found: list[Arrival] = []
    consumer = connection.consumer()
    try:
        for segment_id, segment in sorted(stats["segments"].items(), key=lambda one: int(one[0])):
            for bucket in range(segment["entryBuckets"]):
                place = TopicPartition(segment["kafkaTopic"], bucket, 0)
                _, end = consumer.get_watermark_offsets(place, timeout=_SECONDS_MAX, cached=False)
                consumer.assign([place])
                at = 0
                while at < end:
                    read = consumer.consume(min(_BATCH_MAX, end - at), _SECONDS_MAX)
                    if not read or read[0].error() is not None:
                        raise UnreadableError(f"{place} cannot be read from offset {at} to {end}")
                    for each in read:
                        body = msgspec.json.decode(each.value() or b"")
                        message = msgspec.convert(body["message"], Message)
                        at = (each.offset() or 0) + 1
                        found.append(Arrival(message, "Kafka", int(segment_id), bucket, at - 1))
    finally:
        close_consumer(consumer, _CLOSE_SECONDS_MAX)
    return found
