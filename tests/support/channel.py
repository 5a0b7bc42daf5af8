"""What tests of the channel on a real Kafka share: waiting with a deadline, and strangers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from anabranch.channel.archives import ArchiveRegistry
from anabranch.channel.errors import AppendError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import Entry, append_record
from anabranch.channel.log.kafka_log import KafkaLogReader, KafkaLogWriter
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import Record, UnitMove
from anabranch.core.subscriptions.known_positions import mark_of
from support.quiet import QUIET
from support.topic_cluster import Servers
from support.waiting import WAIT_S


def until(done: Callable[[], bool], what: str) -> None:
    """Calls `done`, which waits a little by itself, until it is true."""
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")


def move(number: int) -> UnitMove:
    """A record that a test can tell from others."""
    unit = "public/default/0x00000000_0x40000000"
    return UnitMove(f"proposal-{number}", unit, Move.ASSIGN, number + 1, "b1:8080", 1, "b2:8080")


def append_all(writer: KafkaLogWriter, records: Iterable[Record]) -> list[AppendError | None]:
    """Appends and waits for every answer, in the order in which they came."""
    answers: list[AppendError | None] = []
    count = 0
    for record in records:
        append_record(writer, record, answers.append)
        count += 1

    def all_answered() -> bool:
        writer.serve(0.1)
        return len(answers) >= count

    until(all_answered, "every append is answered")
    return answers


def read_all(reader: KafkaLogReader, count: int) -> list[Entry]:
    """The next `count` entries."""
    entries: list[Entry] = []

    def enough() -> bool:
        entries.extend(reader.poll(count - len(entries), 0.2))
        return len(entries) >= count

    until(enough, f"{count} entries are read")
    return entries


def produce_raw(
    connection: KafkaConnection,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes]] | None = None,
) -> None:
    """Writes what a stranger, or another release, might."""
    producer = Producer({**QUIET, "bootstrap.servers": connection.bootstrap_servers})
    producer.produce(topic, value, key, headers=headers or [])  # type: ignore[arg-type]
    assert producer.flush(WAIT_S) == 0


def produce_raw_many(connection: KafkaConnection, topic: str, values: Iterable[bytes]) -> None:
    """The same, for many values without keys."""
    producer = Producer({**QUIET, "bootstrap.servers": connection.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def commit(kafka: Servers, group: str, topic: str, *offsets: int, mark: str | None = None) -> None:
    """A group's positions in the partitions of a topic, from the first one on; of a subscription's
    group, that ends in a number, as consumers commit them in its first life, if no mark is given.
    """
    if mark is None:
        number = group.rpartition(".")[2]
        mark = mark_of(int(number)) if number.isdecimal() else ""
    consumer = Consumer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, number, at, mark) for number, at in enumerate(offsets)]

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return False
        return True

    until(is_committed, f"{group} has a coordinator that takes its positions")
    consumer.close()


def commit_archived(
    kafka: Servers, topics: Topics, next_offset: int, archive: str = "archive"
) -> None:
    """Says, as an archive does, that everything before an offset is archived."""
    commit(kafka, topics.archive_group(archive), topics.wal, next_offset)


def registry(kafka: Servers, topics: Topics) -> ArchiveRegistry:
    """As a program that archives has it."""
    connection = KafkaConnection(kafka.bootstrap_servers)
    return ArchiveRegistry(connection, topics, "test", lambda: secrets.token_hex(8))


def archive_to(kafka: Servers, topics: Topics, next_offset: int, archive: str = "archive") -> None:
    """Registers an archive, if it is not, that holds everything before an offset."""
    with closing(registry(kafka, topics)) as archives:
        archives.register(archive, 0, "test:/nowhere")
    commit_archived(kafka, topics, next_offset, archive)
