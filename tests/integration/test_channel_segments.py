"""The Kafka topics of segments on a real Kafka: made, sealed, measured and deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import (
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from anabranch.channel.errors import (
    KafkaPolicyError,
    KafkaUnreachableError,
    ReplicasMissingError,
    SegmentExistsError,
)
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import Sealer, SegmentTopic
from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support import slow_append
from support.channel import DEADLINE_S, commit, until

pytestmark = pytest.mark.integration

_LOCKED_S = 0.3  # whoever holds a lock for longer, holds it for seconds


@pytest.fixture
def connection(kafka: EmbeddedKafka) -> KafkaConnection:
    return KafkaConnection(kafka.bootstrap_servers)


@pytest.fixture
def admin(connection: KafkaConnection) -> Iterator[SegmentAdmin]:
    made = SegmentAdmin(connection, SegmentSettings())
    yield made
    made.close()


def _partitions(connection: KafkaConnection, topic: str) -> int:
    found = connection.admin().list_topics(timeout=DEADLINE_S).topics.get(topic)
    return 0 if found is None or found.error is not None else len(found.partitions)


def _ends(connection: KafkaConnection, topic: SegmentTopic) -> tuple[int, ...]:
    consumer = connection.consumer()
    try:
        return tuple(
            consumer.get_watermark_offsets(TopicPartition(topic.name, number), DEADLINE_S)[1]
            for number in range(topic.partitions)
        )
    finally:
        consumer.close()


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
        self._producer.flush(DEADLINE_S)

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
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_the_topics_of_a_step_are_there_with_all_partitions_however_often_they_are_made(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topics = [SegmentTopic(f"{topic_prefix}{number}", number + 1) for number in range(3)]
    for _ in range(2):
        admin.create(topics, DEADLINE_S)
        admin.await_leaders(topics, DEADLINE_S)
        assert [_partitions(connection, topic.name) for topic in topics] == [1, 2, 3]


def test_a_topic_with_other_partitions_is_not_taken_for_the_segment(
    admin: SegmentAdmin, topic_prefix: str
) -> None:
    admin.create([SegmentTopic(f"{topic_prefix}s", 2)], DEADLINE_S)
    with pytest.raises(SegmentExistsError, match=f"{topic_prefix}s has 2 partitions, not 4"):
        admin.create([SegmentTopic(f"{topic_prefix}s", 4)], DEADLINE_S)


def test_a_message_that_is_older_than_all_that_is_kept_is_refused_and_not_silently_dropped(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    week_ms = 7 * 86_400_000
    topic = SegmentTopic(f"{topic_prefix}s", 1)
    admin = SegmentAdmin(connection, SegmentSettings(retention_ms=week_ms, oldest_ms=week_ms))
    admin.create([topic], DEADLINE_S)
    admin.await_leaders([topic], DEADLINE_S)
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
        assert producer.flush(DEADLINE_S) == 0
    assert answers == ["stored", "INVALID_TIMESTAMP"]


def test_what_kafka_cannot_do_names_the_topic_and_the_remedy(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 1)
    admin = SegmentAdmin(connection, SegmentSettings(replication_factor=3))
    with pytest.raises(ReplicasMissingError, match=f"{topic.name}.*set replicationFactor"):
        admin.create([topic], DEADLINE_S)
    admin.close()
    admin = SegmentAdmin(connection, SegmentSettings(max_message_bytes=-1))
    with pytest.raises(KafkaPolicyError, match=f"{topic.name}.*max.message.bytes"):
        admin.create([topic], DEADLINE_S)
    admin.close()


def test_a_kafka_that_is_down_is_not_waited_for_beyond_the_deadline() -> None:
    nobody = KafkaConnection(f"127.0.0.1:{ports.free_port('127.0.0.1')}")
    admin = SegmentAdmin(nobody, SegmentSettings())
    topic = SegmentTopic("s", 1)
    with pytest.raises(KafkaUnreachableError, match="to create topic s"):
        admin.create([topic], 0.3)
    with pytest.raises(KafkaUnreachableError, match="to seal topic s"):
        admin.seal([topic], 0.3)
    admin.close()


def test_a_sealed_segment_ends_where_its_last_acknowledged_record_is(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 3)
    admin.create([topic], DEADLINE_S)
    admin.await_leaders([topic], DEADLINE_S)
    writer = Writer(connection, topic)
    writer.start(at_least=200)
    ends = admin.seal([topic], DEADLINE_S)
    writer.join()
    assert ends == {topic.name: tuple(writer.acknowledged)}
    assert {error.code() for error in writer.refusals if error} == {KafkaError.MSG_SIZE_TOO_LARGE}
    assert _ends(connection, topic) == ends[topic.name]


def test_what_kafka_is_storing_while_it_refuses_others_is_before_the_end_and_the_rest_is_refused(
    kafka: EmbeddedKafka, connection: KafkaConnection, topic_prefix: str
) -> None:
    """One append has the partition's lock for seconds, another one has passed the check of its size
    and waits for the lock, and the leader refuses whoever comes next.
    """
    topic = SegmentTopic(f"{topic_prefix}s", 2)  # the first one is probed until Kafka has obeyed
    admin = SegmentAdmin(connection, SegmentSettings(max_message_bytes=slow_append.BYTES))
    admin.create([topic], DEADLINE_S)
    admin.await_leaders([topic], DEADLINE_S)
    host, _, port = kafka.bootstrap_servers.partition(":")
    waiting = connection.producer()
    waiting.list_topics(topic.name, timeout=DEADLINE_S)
    batch, user = slow_append.slow_batch(), connection.admin()
    answers: list[KafkaError | None] = []
    with ThreadPoolExecutor(1) as pool:
        append = partial(slow_append.append, (host, int(port)), topic.name, 1, batch)
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
        ends = admin.seal([topic], DEADLINE_S)
        assert [stored.result(DEADLINE_S) for stored in storing] == [0] * len(storing)
    assert waiting.flush(DEADLINE_S) == 0
    admin.close()
    (late,) = answers
    assert late is None or late.code() == KafkaError.MSG_SIZE_TOO_LARGE
    # The late one may have come before the seal.
    stored = slow_append.RECORDS * len(storing) + (late is None)
    assert ends == {topic.name: (0, stored)}
    assert _ends(connection, topic) == (0, stored)


def is_locked(user: AdminClient, topic: str, partition: int, other: int) -> bool:
    """Whether somebody has a partition's lock, which even a deletion of nothing takes, while Kafka
    answers at once for another one.
    """
    free, place = TopicPartition(topic, other, 0), TopicPartition(topic, partition, 0)
    user.delete_records([free])[free].result(DEADLINE_S)
    asked = user.delete_records([place])[place]
    return not futures.wait([asked], _LOCKED_S).done


def test_segments_are_sealed_together_and_sealing_again_finds_the_same_ends(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topics = [SegmentTopic(f"{topic_prefix}{name}", 2) for name in "ab"]
    admin.create(topics, DEADLINE_S)
    producer = connection.producer()
    producer.produce(topics[0].name, b"1", partition=1)
    assert producer.flush(DEADLINE_S) == 0
    expected = {topics[0].name: (0, 1), topics[1].name: (0, 0)}
    for _ in range(3):
        assert admin.seal(topics, DEADLINE_S) == expected


def test_a_segment_whose_topic_somebody_has_deleted_does_not_stop_the_others(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    there, gone = SegmentTopic(f"{topic_prefix}there", 1), SegmentTopic(f"{topic_prefix}gone", 2)
    admin.create([there], DEADLINE_S)
    assert admin.seal([there, gone], DEADLINE_S) == {there.name: (0,), gone.name: (0, 0)}


def test_a_segment_whose_topic_lacks_partitions_is_refused_by_name_until_they_are_added(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    name = f"{topic_prefix}made-anew"
    admin.create([SegmentTopic(name, 1)], DEADLINE_S)
    segment = SegmentTopic(name, 2)
    for _ in range(2):
        lacking = f"{name} has 1 partitions, not 2.*add the missing partitions"
        with pytest.raises(SegmentExistsError, match=lacking):
            admin.seal([segment], DEADLINE_S)
    user = connection.admin()
    user.create_partitions([NewPartitions(name, 2)])[name].result(DEADLINE_S)
    until(lambda: _partitions(connection, name) == 2, "the partition is there")
    assert admin.seal([segment], DEADLINE_S) == {name: (0, 0)}


def test_a_probe_is_never_stored_and_an_open_segment_does_not_pass_for_sealed(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 2)
    admin.create([topic], DEADLINE_S)
    sealer = Sealer(connection, connection.admin())
    with pytest.raises(KafkaUnreachableError, match="to probe whether topic"):
        sealer._probe([(topic.name, 0), (topic.name, 1)], Deadline(connection, 1.0, lambda: None))
    sealer.close()
    assert _ends(connection, topic) == (0, 0)


def test_an_end_that_is_too_early_is_noticed(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 1)
    admin.create([topic], DEADLINE_S)
    producer = connection.producer()
    for _ in range(3):
        producer.produce(topic.name, b"1", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    sealer = Sealer(connection, connection.admin())
    deadline = Deadline(connection, DEADLINE_S, lambda: None)
    sealer._get_acquainted([topic.name], deadline)
    place = (topic.name, 0)
    assert not sealer._nothing_beyond({place: (1, 0)}, deadline, "")
    assert not sealer._nothing_beyond({place: (2, 0)}, deadline, "")
    # Silence means that there is more: a slow answer is asked for again.
    until(lambda: sealer._nothing_beyond({place: (3, 0)}, deadline, ""), "the leader confirms it")
    sealer.close()


def test_deleting_what_is_gone_already_is_fine(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}s", 1)
    group = f"{topic_prefix}group"
    admin.create([topic], DEADLINE_S)
    admin.await_leaders([topic], DEADLINE_S)
    commit(connection, group, topic.name, 0)
    for _ in range(2):
        admin.delete([topic.name, f"{topic_prefix}never"], DEADLINE_S)
        assert admin.delete_groups([group, f"{topic_prefix}never"], DEADLINE_S) == []
    until(lambda: _partitions(connection, topic.name) == 0, "the topic is gone")


def test_a_share_group_is_told_to_begin_at_the_beginning(
    connection: KafkaConnection, admin: SegmentAdmin, topic_prefix: str
) -> None:
    admin.start_share_groups([f"{topic_prefix}queue"], DEADLINE_S)
    resource = ConfigResource(ConfigResource.Type.GROUP, f"{topic_prefix}queue")
    user = connection.admin()
    found = user.describe_configs([resource])[resource].result(DEADLINE_S)
    assert found["share.auto.offset.reset"].value == "earliest"
    assert found["share.assignment.interval.ms"].value == "0"
    assert found["share.delivery.count.limit"].value == "10"


def test_a_share_group_has_less_where_an_operator_allows_less(tmp_path: Path) -> None:
    strict = Differences(server={"group.share.max.delivery.count.limit": "7"})
    with EmbeddedKafka(tmp_path / "kafka", differences=strict) as kafka:
        connection = KafkaConnection(kafka.bootstrap_servers)
        admin = SegmentAdmin(connection, SegmentSettings())
        admin.start_share_groups(["queue"], DEADLINE_S)
        admin.close()
        resource = ConfigResource(ConfigResource.Type.GROUP, "queue")
        user = connection.admin()
        found = user.describe_configs([resource])[resource].result(DEADLINE_S)
        assert found["share.assignment.interval.ms"].value == "0"
        assert found["share.delivery.count.limit"].value == "5"
