"""What the audit asks a real Kafka about sealed segments, and what it makes of the answers."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.segments.positions import GroupPositions
from anabranch.core.entities.layout import entered
from anabranch.core.entities.segment import SegmentInfo, SegmentState, new_segment
from anabranch.core.entities.subscription import SegmentPositions
from anabranch.core.log.records import subscription_key
from anabranch.core.subscriptions.known_positions import kept_mark, mark_of
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.spark_replay.audit.checks.topics.order import check_order
from anabranch.spark_replay.audit.checks.topics.segments import (
    SegmentEnds,
    check_segments,
)
from anabranch.spark_replay.audit.checks.topics.topic_checks import (
    SealedSegment,
    StreamDrain,
    TopicsLeft,
)
from anabranch.spark_replay.audit.segment_edges import read_edges
from anabranch.spark_replay.audit.segment_ends import ask_kafka
from support.channel import commit, produce_raw
from support.waiting import WAIT_S

TOPIC = "public/default/orders"
INCARNATION, CREATED, NOW_MS = 12, 34, 1_790_000_000_000


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
            StreamDrain(
                TOPIC, name, CREATED, CREATED, [SegmentPositions(p.segment_id, ()) for p in parts]
            )
            for name in ("billing", "slow", "never-used")
        ],
    )


def _fill(connection: KafkaConnection, topic: str, partitions: int, records: int) -> None:
    admin = connection.admin()
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    producer = connection.producer()
    for partition in range(partitions):
        for _ in range(records):
            producer.produce(topic, b"value", b"key", partition)
    assert producer.flush(WAIT_S) == 0


def test_ends_commits_and_what_retention_left_are_compared_and_what_is_gone_is_left_out(
    connection: KafkaConnection, topic_prefix: str, topics: Topics
) -> None:
    kept, gone = _sealed(1, 5, 5), _sealed(2, 7)
    topic = kafka_topic(topic_prefix, TOPIC, INCARNATION, kept)
    _fill(connection, topic, 2, 5)
    commit(connection, kafka_group(topic_prefix, TOPIC, "billing", CREATED), topic, 5, 5)
    commit(connection, kafka_group(topic_prefix, TOPIC, "slow", CREATED), topic, 5, 2)
    left = _left(kept, gone)
    told = {
        (TOPIC, name, part): at
        for name, last in (("billing", 5), ("slow", 2))
        for part, at in ((1, (5, last)), (2, (-1,)))
    }
    never = {(TOPIC, "never-used", 1), (TOPIC, "never-used", 2)}
    assert ask_kafka(connection, topic_prefix, left, 0).committed.keys() == told.keys() | never
    produce_raw(connection, topics.wal, subscription_key(TOPIC, "never-used").encode(), b"")
    for begin, violated in ((0, 1), (4, 1), (5, 0)):
        GroupPositions(connection).trim({(topic, 1): begin}, WAIT_S)
        found = ask_kafka(connection, topic_prefix, left, 0)
        assert found == SegmentEnds({(TOPIC, 1): (5, 5)}, told, {(TOPIC, 1): (0, begin)})
        tally = check_segments(left, found, NOW_MS)
        assert (tally.examined, tally.violated) == (6, violated)


@pytest.mark.parametrize("mark", ["", mark_of(CREATED - 1), kept_mark(CREATED)])
@pytest.mark.usefixtures("topics")
def test_what_somebody_else_has_committed_accuses_nobody(
    connection: KafkaConnection, topic_prefix: str, mark: str
) -> None:
    """A tool has reset the group, or a commit from before a seek came late."""
    part = _sealed(1, 5, 5)
    topic = kafka_topic(topic_prefix, TOPIC, INCARNATION, part)
    _fill(connection, topic, 2, 5)
    group = kafka_group(topic_prefix, TOPIC, "billing", CREATED)
    commit(connection, group, topic, 5)
    commit(connection, group, topic, 5, 2, mark=mark)
    commit(connection, group, topic, 5)
    left = _left(part)
    found = ask_kafka(connection, topic_prefix, left, 0)
    assert found.committed[TOPIC, "billing", 1] == (5, None)
    tally = check_segments(left, found, NOW_MS)
    accused = {witness.text.partition(":")[0] for witness in tally.witnesses}
    assert accused == {f"{TOPIC}/slow", f"{TOPIC}/never-used"}


@pytest.mark.usefixtures("topics")
def test_the_end_of_a_transaction_behind_a_seal_is_no_data_and_a_message_there_is(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    part = _sealed(1, 6, 6)
    topic = kafka_topic(topic_prefix, TOPIC, INCARNATION, part)
    _fill(connection, topic, 2, 5)
    writer = connection.producer(transactional_id=topic)
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    for partition in range(2):
        writer.produce(topic, b"value", b"key", partition)
    writer.commit_transaction(WAIT_S)
    left = _left(part)
    found = ask_kafka(connection, topic_prefix, left, 0)
    assert found.ends == {(TOPIC, 1): (6, 6)}
    stray = connection.producer()
    stray.produce(topic, b"value", b"key", 1)
    assert stray.flush(WAIT_S) == 0
    found = ask_kafka(connection, topic_prefix, left, 0)
    assert found.ends == {(TOPIC, 1): (6, 8)}


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
        admin.create_topics([NewTopic(name, 1, 1, config=stamps)])[name].result(WAIT_S)
    for name in names:
        produce_raw(connection, name, b"key", b"the child's comes first")
        time.sleep(0.002)  # another millisecond: the stamps must differ
    edges = read_edges(connection, topic_prefix, TopicsLeft(1, [], [one], 1, []))
    assert (len(edges.firsts), len(edges.lasts)) == (1, 1)
    tally, left_out = check_order(TopicsLeft(1, [], [one], 1, []), edges, 0)
    assert (tally.examined, tally.violated, left_out) == (judged, violated, unjudged)
