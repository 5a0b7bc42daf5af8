"""Topics that only the log knows: any number for a figure or a test, without Kafka making any.

Making 100,000 Kafka topics would measure Kafka. So this module appends the records that a node
would have proposed. It applies the same rules as the nodes' fold, while there is no node to act on
them. Kafka can make the topics of those to read and write, many by one request.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import LATEST
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import append_record
from anabranch.channel.log.kafka_log import KafkaLogReader, KafkaLogWriter
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.positions import GroupPositions
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.bundles.guards import controller_of
from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.topic import TopicMove
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import TopicChange
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.core.topics.propose import topic_change

_AT_ONCE: Final = 5_000  # appends that are not settled
_DEADLINE_S: Final = 60.0
_MADE_AT_ONCE: Final = 500  # Kafka topics
_MAKE_S: Final = 300.0


def append_topics(
    connection: KafkaConnection, prefix: str, broker: str, names: Sequence[str], segments: int
) -> list[SegmentTopic]:
    """Appends the creation and opening of each of `names`, by the session of a broker that is not
    running now.

    That broker must own the bundles that they fall into. Raises RuntimeError if a record would be
    rejected, or was not appended. Returns the Kafka topics that they need.
    """
    wal = Topics(prefix).wal
    replica = _folded(connection, wal)
    writer = KafkaLogWriter(connection, wal)
    failures: list[object] = []
    settled = 0
    for appended, record in enumerate(_records(replica, broker, names, segments), 1):
        append_record(writer, record, lambda error: failures.append(error) if error else None)
        while appended - settled > _AT_ONCE:
            settled += writer.serve(_DEADLINE_S)
    writer.close(_DEADLINE_S)
    if failures:
        raise RuntimeError(f"{len(failures)} records were not appended: {failures[0]}")
    return [
        SegmentTopic(kafka_topic(prefix, name, topic.incarnation, each), each.buckets)
        for name in names
        if (topic := replica.topic(name)) is not None
        for each in topic.segments
    ]


def make_kafka_topics(connection: KafkaConnection, topics: Sequence[SegmentTopic]) -> None:
    """Has Kafka make them, and returns when it serves each of them.

    Kafka writes down at once that they exist. A broker then makes the logs of thousands, one after
    another, and does little else until that is done.
    """
    admin = SegmentAdmin(connection, SegmentSettings())
    try:
        for first in range(0, len(topics), _MADE_AT_ONCE):
            admin.create(topics[first : first + _MADE_AT_ONCE], _MAKE_S)
    finally:
        admin.close()
    places = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    GroupPositions(connection).offsets(places, LATEST, _MAKE_S)


def _folded(connection: KafkaConnection, wal: str) -> MemoryReplica:
    replica = MemoryReplica()
    reader = KafkaLogReader(connection, wal, 0)
    _, end = reader.offsets(_DEADLINE_S)
    while replica.next_offset < end:
        for entry in reader.poll(1_000, _DEADLINE_S):
            replica.read(entry.record(), entry.offset, entry.timestamp_ms)
    reader.close()
    return replica


def _records(
    replica: MemoryReplica, broker: str, names: Sequence[str], segments: int
) -> Iterator[TopicChange]:
    """Yields the records, each valid by the fold of those before it."""
    session = replica.session(broker)
    if session is None or not session.open:
        raise RuntimeError(f"{broker} has no session")
    actor = Actor(broker, session.version)
    first = initial_segments(segments, segments)
    moves: tuple[tuple[TopicMove, dict[str, Any]], ...] = (
        (TopicMove.CREATE, {"segments": first}),
        (TopicMove.OPEN, {}),
    )
    for name in names:
        _, owner = controller_of(replica, name)
        for move, fields in moves:
            before = replica.topic(name)
            record = topic_change(actor, name, before, move, secrets.token_hex(16), **fields)
            folded = replica.read(record, replica.next_offset, int(time.time() * 1000))
            if folded.outcome.verdict is not Verdict.ACCEPTED:
                why = f"{folded.outcome.verdict.name}, owner {owner}"
                raise RuntimeError(f"{record} would be rejected: {why}")
            yield record
