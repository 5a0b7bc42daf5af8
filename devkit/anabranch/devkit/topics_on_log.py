"""Topics that only the log knows: as many as a figure or a test wants, without Kafka making any.

Making 100,000 Kafka topics would measure Kafka. So the log is given the records that a node would
have proposed, by the very rules that nodes fold it with, while there is no node to act on them.
Who wants to read and write them, too, has Kafka make theirs, many by one request.
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
from anabranch.core.bundles.propose import Actor
from anabranch.core.log.records import TopicChange
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.topic import TopicMove

_AT_ONCE: Final = 5_000  # appends that are not settled
_DEADLINE_S: Final = 60.0
_MADE_AT_ONCE: Final = 500  # Kafka topics
_MAKE_S: Final = 300.0


def append_topics(
    connection: KafkaConnection, prefix: str, broker: str, names: Sequence[str], segments: int
) -> list[SegmentTopic]:
    """Each of `names` is created and opened, by the session of a broker that is not running now.

    That broker must own the bundles that they fall into. Raises RuntimeError when a record would
    be rejected, or was not appended. Returns the Kafka topics that they need.
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
    """Kafka makes them, and serves each of them when this returns.

    That they exist is written down at once; until a broker has made the logs of thousands, which it
    does one after another, it does little else.
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
    """The records, each as the fold of those before it makes it valid."""
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
