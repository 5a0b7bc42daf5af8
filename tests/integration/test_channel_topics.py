"""The topics of a cluster on a real Kafka: made once, checked always."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics, topic_id
from support.channel import until

SETTINGS = TopicSettings()


def test_nodes_that_start_together_make_each_topic_once_and_all_find_it_sound(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topics = Topics(topic_prefix)

    def start(_: int) -> list[str]:
        return ensure_topics(connection, topics, SETTINGS, 60.0)

    with ThreadPoolExecutor(5) as nodes:
        made = [name for names in nodes.map(start, range(5)) for name in names]

    assert sorted(made) == sorted(
        [
            topics.wal,
            topics.snapshot,
            topics.load,
            topics.broker_load,
            topics.top_bundles,
            topics.brokers,
        ]
    )
    assert ensure_topics(connection, topics, SETTINGS, 60.0) == []


def test_a_topic_that_was_made_anew_has_another_id(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topics = Topics(topic_prefix)
    ensure_topics(connection, topics, SETTINGS, 60.0)
    before = topic_id(connection, topics.wal, 30.0)
    assert before
    assert topic_id(connection, topics.wal, 30.0) == before
    admin = connection.admin()
    admin.delete_topics([topics.wal])[topics.wal].result(30.0)
    # Until Kafka has forgotten it, it is neither there nor can it be made.
    until(lambda: _is_made(connection, topics), "the topic is made anew")
    assert topic_id(connection, topics.wal, 30.0) != before


def _is_made(connection: KafkaConnection, topics: Topics) -> bool:
    try:
        return topics.wal in ensure_topics(connection, topics, SETTINGS, 5.0)
    except (KafkaRefusedError, KafkaUnreachableError):
        return False


def test_more_replicas_than_kafka_has_brokers_are_refused_in_its_words(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    with pytest.raises(KafkaRefusedError, match=f"create topic {topic_prefix}wal.*set replication"):
        ensure_topics(connection, Topics(topic_prefix), TopicSettings(3, 2), 60.0)
