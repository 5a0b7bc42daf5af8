"""The messages of a scalable topic that Kafka holds, read as any client of Kafka reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition

from anabranch.channel.kafka.connection import NO_GROUP, KafkaConnection, close_consumer
from anabranch.core.errors import AnabranchError
from anabranch.devkit.demo.judge import Arrival, TraceMessage

_SECONDS_MAX: Final = 10.0
_CLOSE_SECONDS_MAX: Final = 2.0
_BATCH_MAX: Final = 1_000


class MissingMessagesError(AnabranchError):
    """Kafka did not give what it says it has."""


def stored(connection: KafkaConnection, segments: Mapping[int, tuple[str, int]]) -> list[Arrival]:
    """Every message in every segment's Kafka topic, segment by segment, parents first.

    `segments` has by id each one's Kafka topic and its number of buckets. Each key's messages are
    in their order, since a child has a greater id than its parents. Raises MissingMessagesError.
    """
    places = {
        (topic, bucket): segment_id
        for segment_id, (topic, buckets) in segments.items()
        for bucket in range(buckets)
    }
    found: list[Arrival] = []
    consumer = connection.consumer()
    try:
        left = 0
        for place in places:
            partition = TopicPartition(*place)
            _, end = consumer.get_watermark_offsets(partition, _SECONDS_MAX, cached=False)
            left += end  # nothing is removed before its retention is over
        consumer.assign([TopicPartition(*place, 0) for place in places])
        while left > 0:
            read = consumer.consume(min(left, _BATCH_MAX), _SECONDS_MAX)  # waits for so many
            if not read:
                raise MissingMessagesError(f"{left} messages that Kafka says it has were not given")
            for each in read:
                error = each.error()
                if error is None:
                    found.append(_arrival(places, each))
                    left -= 1
                elif error.code() != NO_GROUP:
                    raise MissingMessagesError(f"Kafka: {error}")
                # Else who asks may use groups of subscriptions alone, and this needs none.
    finally:
        close_consumer(consumer, _CLOSE_SECONDS_MAX)
    return sorted(found, key=lambda one: (one.segment_id, one.bucket, one.offset))


def _arrival(places: Mapping[tuple[str, int], int], read: KafkaMessage) -> Arrival:
    bucket = read.partition() or 0
    message = msgspec.json.decode(read.value() or b"", type=TraceMessage)
    return Arrival(message, "Kafka", places[read.topic() or "", bucket], bucket, read.offset() or 0)
