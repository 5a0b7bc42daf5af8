"""Puts a `History` into the topics of a real Kafka, with the history's own timestamps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.codec import HORIZON_KEY, SCHEMA_HEADER, encode_heartbeat, encode_horizon
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, topic_id
from anabranch.channel.log.entries import Entry
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.folders import LocalFolder
from anabranch.spark_replay.archive.registration import IDENTITY, ArchiveIdentity
from support.history import History, SnapshotTaken
from support.quiet import QUIET
from support.waiting import WAIT_S


def make_topics(kafka: EmbeddedKafka, prefix: str) -> Topics:
    """A cluster's topics, but for the clock: records keep the time that their writer gives them."""
    topics = Topics(prefix)
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    stamped = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    compact = {**stamped, "cleanup.policy": "compact"}
    wanted = [
        NewTopic(topics.wal, 1, 1, config=stamped),
        NewTopic(topics.snapshot, 1, 1, config=compact),
        NewTopic(topics.brokers, 1, 1, config=compact),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(WAIT_S)
    return topics


def append(kafka: EmbeddedKafka, topics: Topics, entries: Iterable[Entry]) -> None:
    """Appends entries to the WAL."""
    # Idempotent, because what Kafka refuses for a moment may not come behind what followed it.
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True}
    producer = Producer({**QUIET, **settings, "linger.ms": 5})
    for entry in entries:
        producer.produce(
            topics.wal,
            entry.value,
            entry.key,
            0,
            timestamp=entry.timestamp_ms,
            headers=[(SCHEMA_HEADER, entry.schema)] if entry.schema else [],
        )
        producer.poll(0)
    if producer.flush(WAIT_S):
        raise AssertionError("Kafka did not take the history")


def publish(
    kafka: EmbeddedKafka, prefix: str, history: History, snapshot: SnapshotTaken | None = None
) -> Topics:
    """Makes the topics and fills them: the log, the heartbeats, and the snapshot if there is one.

    Without a snapshot, an aborted one is left in its topic: nobody may read it.
    """
    topics = make_topics(kafka, prefix)
    append(kafka, topics, history.entries)
    beats = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    for beat, log_ms in history.beats:
        beats.produce(
            topics.brokers, encode_heartbeat(beat), beat.broker.encode(), 0, timestamp=log_ms
        )
    if beats.flush(WAIT_S):
        raise AssertionError("Kafka did not take the heartbeats")
    writer = _in_transaction(kafka, topics)
    writer.produce(topics.snapshot, b"nobody reads this", b"tenant:aborted", 0)
    writer.flush(WAIT_S)
    writer.abort_transaction(WAIT_S)
    if snapshot is not None:
        put_snapshot(kafka, topics, snapshot)
    return topics


def _in_transaction(kafka: EmbeddedKafka, topics: Topics) -> Producer:
    place = {**QUIET, "bootstrap.servers": kafka.bootstrap_servers}
    writer = Producer({**place, "transactional.id": topics.compactor_id})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    return writer


def put_snapshot(kafka: EmbeddedKafka, topics: Topics, snapshot: SnapshotTaken) -> None:
    """Writes it as a compactor would."""
    writer = _in_transaction(kafka, topics)
    for key, value in snapshot.values.items():
        writer.produce(topics.snapshot, value, key.encode(), 0)
    writer.produce(topics.snapshot, encode_horizon(snapshot.horizon), HORIZON_KEY.encode(), 0)
    writer.commit_transaction(WAIT_S)
    _until_visible(kafka, topics.snapshot)


def name_archive(kafka: EmbeddedKafka, topics: Topics, folder: Path, archive: str) -> None:
    """Lets the archive to be made in a folder be the one that a history has registered."""
    folder.mkdir(parents=True, exist_ok=True)
    log_id = topic_id(KafkaConnection(kafka.bootstrap_servers), topics.wal, WAIT_S)
    identity = msgspec.json.encode(ArchiveIdentity(archive, log_id, 0))
    LocalFolder(folder).write(IDENTITY, identity)


def _until_visible(kafka: EmbeddedKafka, topic: str) -> None:
    """Kafka answers a commit before readers of what is committed can see it."""
    place = TopicPartition(topic, 0)
    deadline = time.monotonic() + WAIT_S
    ends: set[int] = set()
    while len(ends) != 1:
        if time.monotonic() > deadline:
            raise AssertionError(f"the end of {topic} did not become visible")
        ends = set()
        for level in ("read_committed", "read_uncommitted"):
            consumer = Consumer(
                {
                    **QUIET,
                    "bootstrap.servers": kafka.bootstrap_servers,
                    "group.id": "nobody",
                    "isolation.level": level,
                }
            )
            ends.add(consumer.get_watermark_offsets(place, timeout=WAIT_S)[1])
            consumer.close()


def trim(kafka: EmbeddedKafka, topics: Topics, up_to: int) -> None:
    """Deletes the WAL before an offset."""
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topics.wal, 0, up_to)]).values():
        future.result(WAIT_S)
