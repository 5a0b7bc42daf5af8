"""Reads the last records of sealed segments from Kafka, and the first ones of their children.

It reads one record of each partition, of the segments that were sealed last. These records are
evidence of the order in which a key's messages were stored (`checks.order`). It is best effort:
records that are gone, or do not come, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffset,
    PartitionOffsets,
    Place,
)
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.spark_replay.audit.checks.topics.order import Bucket, Edge, Edges
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft

_SEGMENTS_MAX: Final = 100
_ANSWER_S: Final = 10.0
_QUIET_S: Final = 1.0  # a record that has not come by then does not come
_READ_S: Final = 20.0
_FETCH_BYTES: Final = 65_536  # one record of each partition is wanted


def read_edges(connection: KafkaConnection, prefix: str, left: TopicsLeft) -> Edges:
    """Returns Kafka's records at the edges of the segments that were sealed last."""
    newest = sorted(left.sealed, key=lambda one: -one.segment.sealed_at_ms)[:_SEGMENTS_MAX]
    lasts = {place: bucket for one in newest for place, bucket in _places(prefix, one, one.segment)}
    firsts = {
        place: bucket
        for one in newest
        for child in one.children
        for place, bucket in _places(prefix, one, child)
    }
    both = [*lasts, *firsts]
    begin, end = _ranges(connection, both)
    has = {place for place in both if begin.get(place, 0) < end.get(place, 0)}
    at_end = _read(connection, {place: end[place] - 1 for place in lasts if place in has})
    at_begin = _read(connection, {place: begin[place] for place in firsts if place in has})
    return Edges(
        {firsts[place]: edge for place, edge in at_begin.items()},
        {lasts[place]: edge for place, edge in at_end.items()},
    )


def _places(prefix: str, one: SealedSegment, part: SegmentInfo) -> Iterator[tuple[Place, Bucket]]:
    name = kafka_topic(prefix, one.topic, one.incarnation, part)
    for bucket in range(part.buckets):
        yield (name, bucket), (one.topic, part.segment_id, bucket)


def _ranges(
    connection: KafkaConnection, places: list[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    """Returns the begins and the ends of partitions, without those that are gone, or do
    not answer.
    """
    if not places:
        return {}, {}
    asker = PartitionOffsets(connection)

    def told(at: int) -> dict[Place, int]:
        answers = asker.ask_each(places, at, _ANSWER_S)
        return {
            place: each.offset
            for place, each in answers.items()
            if isinstance(each, PartitionOffset)
        }

    try:
        return told(EARLIEST), told(LATEST)
    finally:
        asker.close()


def _read(connection: KafkaConnection, wanted: dict[Place, int]) -> dict[Place, Edge]:
    """Returns the record at each offset, if there is one."""
    found: dict[Place, Edge] = {}
    if not wanted:
        return found
    consumer = connection.consumer(max_partition_fetch_bytes=_FETCH_BYTES)
    try:
        consumer.assign([TopicPartition(*place, at) for place, at in wanted.items()])
        deadline = time.monotonic() + _READ_S
        while len(found) < len(wanted) and time.monotonic() < deadline:
            batch = consumer.consume(len(wanted), _QUIET_S)
            if not batch:
                break
            done = []
            for message in batch:
                place = (message.topic() or "", message.partition() or 0)
                if message.error() is None and place not in found:
                    found[place] = _edge(message)
                    done.append(TopicPartition(*place))
            consumer.incremental_unassign(done)
    finally:
        close_consumer(consumer)
    return found


def _edge(message: Message) -> Edge:
    kind, time_ms = message.timestamp()
    return Edge(message.key(), time_ms, kind == TIMESTAMP_LOG_APPEND_TIME)
