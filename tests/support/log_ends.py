"""Where partitions end, asked of a Kafka whose brokers may be about to lead."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.waiting import WAIT_S

# A new leader has these answers until its followers have told it how far they are.
_YET_TO_LEAD = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
)


def log_end(reader: Consumer, place: TopicPartition, timeout_s: float = WAIT_S) -> int:
    """The end of a partition, asked again while nobody leads it."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return int(reader.get_watermark_offsets(place, timeout_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in _YET_TO_LEAD or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def log_ends(reader: Consumer, topic: str, partitions: int) -> tuple[int, ...]:
    """As `log_end`, of all partitions of a topic; it closes the consumer."""
    try:
        return tuple(log_end(reader, TopicPartition(topic, each)) for each in range(partitions))
    finally:
        reader.close()
