"""The Kafka topics of segments on a real Kafka: made, sealed, measured and deleted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.broker.topics.controllers.worker import KafkaSegments
from anabranch.channel import errors
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import Sealer, SegmentTopic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support import hand_made_batches
from support.channel import commit, until
from support.log_ends import log_ends
from support.waiting import WAIT_S

_LOCKED_S = 0.3  # whoever holds a lock for longer, holds it for seconds


@pytest.fixture
def admin(connection: KafkaConnection) -> Iterator[SegmentAdmin]:
    made = SegmentAdmin(connection, SegmentSettings())
    yield made
    made.close()


def _made(admin: SegmentAdmin, name: str, partitions: int = 1) -> SegmentTopic:
    """An empty one, whose leaders lead."""
    topic = SegmentTopic(name, partitions)
    admin.create([topic], WAIT_S)
    admin.await_leaders([topic], WAIT_S)
    return topic


def _partitions(connection: KafkaConnection, topic: str) -> int:
    found = connection.admin().list_topics(timeout=WAIT_S).topics.get(topic)
    return 0 if found is None or found.error is not None else len(found.partitions)


def _ends(connection: KafkaConnection, topic: SegmentTopic) -> tuple[int, ...]:
    return log_ends(connection.consumer(), topic.name, topic.partitions)


_UNANSWERED_MAX = 5_000


class Writer:
    """Appends as fast as Kafka takes it, until every partition refuses."""

    def __init__(self, connection: KafkaConnection, topic: SegmentTopic) -> None:
        self.acknowledged = [0] * topic.partitions
        self.refusals: list[KafkaError | None] = [None] * topic.partitions
        self._topic = topic
        self._producer: Producer = connection.producer(linger_ms=2)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not all(self.refusals):
            for number in range(self._topic.partitions):
                if self.refusals[number] is None and len(self._producer) < _UNANSWERED_MAX:
                    self._producer.produce(
                        self._topic.name, b"x" * 100, partition=number, on_delivery=self._done
                    )
            self._producer.poll(0.001)
        self._producer.flush(WAIT_S)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        number = message.partition() or 0
        if error is None:
            self.acknowledged[number] += 1
        else:
            self.refusals[number] = error

    def start(self, at_least: int) -> None:
        self._thread.start()
        until(lambda: min(self.acknowledged) >= at_least, "records are acknowledged")

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def test_the_topics_of_a_step_are_there_with_all_partitions_however_often_they_are_made(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topics = [SegmentTopic(f"{topic_prefix}{number}", number + 1) for number in range(3)]
    for _ in range(2):
        admin.create(topics, WAIT_S)
        admin.await_leaders(topics, WAIT_S)
        assert [_partitions(connection, topic.name) for topic in topics] == [1, 2, 3]
    # One with other partitions is not taken for the segment.
    with pytest.raises(errors.SegmentExistsError, match=f"{topic_prefix}1 has 2 partitions, not 4"):
        admin.create([SegmentTopic(f"{topic_prefix}1", 4)], WAIT_S)


def test_a_message_that_is_older_than_all_that_is_kept_is_refused_and_not_silently_dropped(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    week_ms = 7 * 86_400_000
    admin = SegmentAdmin(connection, SegmentSettings(retention_ms=week_ms, oldest_ms=week_ms))
    topic = _made(admin, f"{topic_prefix}s")
    admin.close()
    answers: list[str] = []
    producer = connection.producer()
    for age_ms in (week_ms - 60_000, week_ms + 60_000):
        producer.produce(
            topic.name,
            b"x",
            timestamp=round(time.time() * 1000) - age_ms,
            on_delivery=lambda error, _: answers.append(error.name() if error else "stored"),
        )
        assert producer.flush(WAIT_S) == 0
    assert answers == ["stored", "INVALID_TIMESTAMP"]


def test_what_kafka_cannot_do_names_the_topic_and_the_remedy(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 1)
    admin = SegmentAdmin(connection, SegmentSettings(replication_factor=3))
    with pytest.raises(errors.ReplicasMissingError, match=f"{topic.name}.*set replicationFactor"):
        admin.create([topic], WAIT_S)
    admin.close()
    admin = SegmentAdmin(connection, SegmentSettings(max_message_bytes=-1))
    with pytest.raises(errors.KafkaPolicyError, match=f"{topic.name}.*max.message.bytes"):
        admin.create([topic], WAIT_S)
    admin.close()


def test_a_sealed_segment_ends_where_its_last_acknowledged_record_is(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = _made(admin, f"{topic_prefix}s", 3)
    writer = Writer(connection, topic)
    writer.start(at_least=200)
    ends = admin.seal([topic], WAIT_S)
    writer.join()
    assert ends == {topic.name: tuple(writer.acknowledged)}
    assert {error.code() for error in writer.refusals if error} == {KafkaError.MSG_SIZE_TOO_LARGE}
    assert _ends(connection, topic) == ends[topic.name]
    # Sealed again, together with one that is empty, it ends where it did.
    empty = SegmentTopic(f"{topic_prefix}empty", 2)
    admin.create([empty], WAIT_S)
    for _ in range(2):
        assert admin.seal([topic, empty], WAIT_S) == {**ends, empty.name: (0, 0)}


@pytest.mark.long
def test_what_kafka_is_storing_while_it_refuses_others_is_before_the_end_and_the_rest_is_refused(
    kafka: EmbeddedKafka, connection: KafkaConnection, topic_prefix: str
) -> None:
    """One append has the partition's lock for seconds, another one has passed the check of its size
    and waits for the lock, and the leader refuses whoever comes next.
    """
    admin = SegmentAdmin(connection, SegmentSettings(max_message_bytes=hand_made_batches.BYTES))
    topic = _made(admin, f"{topic_prefix}s", 2)  # the first one is probed until Kafka has obeyed
    host, _, port = kafka.bootstrap_servers.partition(":")
    waiting = connection.producer()
    waiting.list_topics(topic.name, timeout=WAIT_S)
    batch, user = hand_made_batches.slow_batch(), connection.admin()
    answers: list[KafkaError | None] = []
    with ThreadPoolExecutor(1) as pool:
        append = partial(hand_made_batches.append, (host, int(port)), topic.name, 1, batch)
        storing = [pool.submit(append)]

        def has_the_lock() -> bool:
            if storing[-1].done():  # a busy machine may not look while it has it
                storing.append(pool.submit(append))
            return is_locked(user, topic.name, 1, other=0)

        until(has_the_lock, "the append has the lock")
        waiting.produce(
            topic.name, b"late", partition=1, on_delivery=lambda error, _: answers.append(error)
        )
        waiting.poll(0)
        ends = admin.seal([topic], WAIT_S)
        assert [stored.result(WAIT_S) for stored in storing] == [0] * len(storing)
    assert waiting.flush(WAIT_S) == 0
    admin.close()
    (late,) = answers
    assert late is None or late.code() == KafkaError.MSG_SIZE_TOO_LARGE
    # The late one may have come before the seal.
    stored = hand_made_batches.RECORDS * len(storing) + (late is None)
    assert ends == {topic.name: (0, stored)}
    assert _ends(connection, topic) == (0, stored)


def test_the_least_batch_that_can_be_made_by_hand_is_refused_by_a_sealed_segment(
    kafka: EmbeddedKafka, connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = _made(admin, f"{topic_prefix}s")
    host, _, port = kafka.bootstrap_servers.partition(":")
    append = partial(hand_made_batches.append, (host, int(port)), topic.name, 0)
    for count, batch in enumerate(hand_made_batches.least_batches(), 1):
        assert append(batch) == 0
        assert _ends(connection, topic) == (count,)
    assert admin.seal([topic], WAIT_S) == {topic.name: (count,)}
    for batch in hand_made_batches.least_batches():
        assert append(batch) == KafkaError.MSG_SIZE_TOO_LARGE
    assert _ends(connection, topic) == (count,)


def is_locked(user: AdminClient, topic: str, partition: int, other: int) -> bool:
    """Whether somebody has a partition's lock, which even a deletion of nothing takes, while Kafka
    answers at once for another one.
    """
    free, place = TopicPartition(topic, other, 0), TopicPartition(topic, partition, 0)
    user.delete_records([free])[free].result(WAIT_S)
    return not futures.wait([user.delete_records([place])[place]], _LOCKED_S).done


def test_a_probe_is_never_stored_and_an_open_segment_does_not_pass_for_sealed(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 2)
    admin.create([topic], WAIT_S)
    sealer = Sealer(connection, connection.admin(), None)
    with pytest.raises(errors.KafkaUnreachableError, match="to probe whether topic"):
        sealer._probe([(topic.name, 0), (topic.name, 1)], Deadline(connection, 1.0, lambda: None))
    sealer.close()
    assert _ends(connection, topic) == (0, 0)


def test_deleting_what_is_gone_already_is_fine(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    group = f"{topic_prefix}group"
    topic = _made(admin, f"{topic_prefix}s")
    commit(connection, group, topic.name, 0)
    for _ in range(2):
        admin.delete([topic.name, f"{topic_prefix}never"], WAIT_S)
        assert admin.delete_groups([group, f"{topic_prefix}never"], WAIT_S) == []
    until(lambda: _partitions(connection, topic.name) == 0, "the topic is gone")


def test_a_share_group_is_told_to_begin_at_the_beginning(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    admin.start_share_groups([f"{topic_prefix}queue"], WAIT_S)
    resource = ConfigResource(ConfigResource.Type.GROUP, f"{topic_prefix}queue")
    user = connection.admin()
    found = user.describe_configs([resource])[resource].result(WAIT_S)
    assert found["share.auto.offset.reset"].value == "earliest"
    assert found["share.isolation.level"].value == "read_committed"
    assert found["share.assignment.interval.ms"].value == "0"
    assert found["share.delivery.count.limit"].value == "10"


@pytest.mark.long
def test_a_share_group_has_less_where_an_operator_allows_less(tmp_path: Path) -> None:
    strict = Differences(server={"group.share.max.delivery.count.limit": "7"})
    with EmbeddedKafka(tmp_path / "kafka", differences=strict) as kafka:
        connection = KafkaConnection(kafka.bootstrap_servers)
        admin = SegmentAdmin(connection, SegmentSettings())
        admin.start_share_groups(["queue"], WAIT_S)
        admin.close()
        resource = ConfigResource(ConfigResource.Type.GROUP, "queue")
        user = connection.admin()
        found = user.describe_configs([resource])[resource].result(WAIT_S)
        assert found["share.assignment.interval.ms"].value == "0"
        assert found["share.delivery.count.limit"].value == "5"


def test_a_node_s_own_look_tells_what_librdkafka_s_does(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    made = [_made(admin, f"{topic_prefix}{each}", each) for each in (1, 3)]
    admin.seal(made[:1], WAIT_S)
    names = [each.name for each in made] + [f"{topic_prefix}absent"]
    with socket.create_server(("127.0.0.1", 0)) as closing:
        dead = "{}:{}".format(*closing.getsockname())
    node = KafkaSegments(
        KafkaConnection(f"{dead},{connection.bootstrap_servers}"), SegmentSettings()
    )
    try:
        with mock.patch("anabranch.channel.segments.admin.look") as librdkafka:
            found = node.look(names, WAIT_S)
        librdkafka.assert_not_called()
    finally:
        node.close()
    assert found == admin.look(names, WAIT_S)
    sealed, opened, absent = map(found.get, names)
    assert sealed is not None
    assert opened is not None
    assert absent is None
    assert (sealed.partitions, opened.partitions) == (1, 3)
    assert sealed.settings["max.message.bytes"] == "78"
