"""What the audit asks a real Kafka about sealed segments, and what it makes of the answers."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.core.topics.layout import entered
from anabranch.core.topics.segment import SegmentInfo, SegmentState, new_segment
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.audit.checks.topics.order import check_order
from anabranch.spark_replay.audit.checks.topics.segments import check_segments
from anabranch.spark_replay.audit.checks.topics.topic_checks import (
    SealedSegment,
    StreamDrain,
    TopicsLeft,
)
from anabranch.spark_replay.audit.segment_edges import read_edges
from anabranch.spark_replay.audit.segment_ends import ask_kafka
from support.channel import DEADLINE_S, commit, produce_raw

pytestmark = pytest.mark.integration

TOPIC = "public/default/orders"
INCARNATION, CREATED, NOW_MS = 12, 34, 1_790_000_000_000


@pytest.fixture
def connection(kafka: EmbeddedKafka) -> KafkaConnection:
    return KafkaConnection(kafka.bootstrap_servers)


def _sealed(segment_id: int, *end_offsets: int) -> SegmentInfo:
    part = entered(new_segment(segment_id, 0, 0xFFFF, len(end_offsets)), 0, NOW_MS)
    fields = {name: getattr(part, name) for name in part.__struct_fields__}
    ends = {"state": SegmentState.SEALED, "sealed_at_ms": NOW_MS, "end_offsets": end_offsets}
    return SegmentInfo(**{**fields, **ends})


def _left(*parts: SegmentInfo) -> TopicsLeft:
    return TopicsLeft(
        topics=1,
        sealed=[SealedSegment(TOPIC, INCARNATION, part, 99) for part in parts],
        sealed_count=len(parts),
        drains=[
            StreamDrain(TOPIC, "billing", CREATED, tuple(part.segment_id for part in parts)),
            StreamDrain(TOPIC, "never-used", CREATED + 1, ()),
        ],
    )


def _fill(connection: KafkaConnection, topic: str, partitions: int, records: int) -> None:
    admin = connection.admin()
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)
    producer = connection.producer()
    for partition in range(partitions):
        for _ in range(records):
            producer.produce(topic, b"value", b"key", partition)
    assert producer.flush(DEADLINE_S) == 0


def test_ends_and_commits_that_agree_with_the_log_are_found_sound_and_what_is_gone_is_left_out(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    kept, gone = _sealed(1, 5, 5), _sealed(2, 7)
    topic = kafka_topic(topic_prefix, TOPIC, INCARNATION, kept)
    _fill(connection, topic, 2, 5)
    commit(connection, kafka_group(topic_prefix, TOPIC, "billing", CREATED), topic, 5, 5)
    left = _left(kept, gone)
    found = ask_kafka(connection, topic_prefix, left)
    assert found.ends == {(TOPIC, 1): (5, 5)}
    assert found.committed == {
        (TOPIC, "billing", 1): (5, 5),
        (TOPIC, "billing", 2): (-1,),
    }
    tally = check_segments(left, found, NOW_MS)
    assert (tally.examined, tally.violated) == (4, 0)


def test_data_after_a_seal_and_a_commit_that_lags_behind_it_are_found(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    part = _sealed(1, 5)
    topic = kafka_topic(topic_prefix, TOPIC, INCARNATION, part)
    _fill(connection, topic, 1, 5)
    commit(connection, kafka_group(topic_prefix, TOPIC, "billing", CREATED), topic, 4)
    produce_raw(connection, topic, b"key", b"too late")
    left = _left(part)
    tally = check_segments(left, ask_kafka(connection, topic_prefix, left), NOW_MS)
    late, lagging = (witness.text for witness in tally.witnesses)
    assert late == (
        f"{TOPIC}: segment 0000-ffff-1 partition 0: data after its seal: it was sealed at 5 and "
        "ends at 6"
    )
    assert lagging == (
        f"{TOPIC}/billing: segment 0000-ffff-1 partition 0 is called drained, but committed 4 of 5"
    )


def test_a_group_that_kafka_does_not_know_has_committed_nothing(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    part = _sealed(1, 0)
    _fill(connection, kafka_topic(topic_prefix, TOPIC, INCARNATION, part), 1, 0)
    left = _left(part)
    found = ask_kafka(connection, topic_prefix, left)
    assert found.committed == {(TOPIC, "billing", 1): (-1,)}
    assert check_segments(left, found, NOW_MS).violated == 0


@pytest.mark.parametrize(
    ("kind", "judged", "violated", "unjudged"),
    [("LogAppendTime", 1, 1, 0), ("CreateTime", 0, 0, 1)],
)
def test_a_child_that_was_written_to_before_its_parent_is_found_where_brokers_stamp_records(
    connection: KafkaConnection,
    topic_prefix: str,
    kind: str,
    judged: int,
    violated: int,
    unjudged: int,
) -> None:
    parent, child, idle = _sealed(1, 1), new_segment(2, 0, 0xFFFF, 1), new_segment(3, 0, 0, 1)
    one = SealedSegment(TOPIC, INCARNATION, parent, 99, (child, idle))
    names = [kafka_topic(topic_prefix, TOPIC, INCARNATION, part) for part in (child, parent)]
    admin = connection.admin()
    stamps = {"message.timestamp.type": kind}
    for name in (*names, kafka_topic(topic_prefix, TOPIC, INCARNATION, idle)):
        topic = NewTopic(name, 1, 1, config=stamps)
        admin.create_topics([topic])[name].result(DEADLINE_S)
    for name in names:
        produce_raw(connection, name, b"key", b"the child's comes first")
        time.sleep(0.002)  # another millisecond: the stamps must differ
    edges = read_edges(connection, topic_prefix, TopicsLeft(1, [], [one], 1, []))
    assert (len(edges.firsts), len(edges.lasts)) == (1, 1)
    tally, left_out = check_order(TopicsLeft(1, [], [one], 1, []), edges, 0)
    assert (tally.examined, tally.violated, left_out) == (judged, violated, unjudged)
