"""The topics of a cluster on a real Kafka: made once, checked always."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError, WrongTopicError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics, topic_id
from anabranch.devkit import ports
from support.channel import until

SETTINGS = TopicSettings()


def _create(connection: KafkaConnection, topic: str, partitions: int, **config: str) -> None:
    admin = connection.admin()
    new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])[topic].result(30.0)


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


SOUND = {
    "cleanup_policy": "delete",
    "retention_ms": "-1",
    "retention_bytes": "-1",
    "message_timestamp_type": "LogAppendTime",
    "unclean_leader_election_enable": "false",
    "max_message_bytes": "9000000",
}


def test_a_wal_with_wrong_settings_is_refused_with_the_remedy(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topics = Topics(topic_prefix)
    _create(connection, topics.wal, 1, **SOUND | {"cleanup_policy": "compact"})
    wrong = "cleanup.policy=compact, expected delete"
    with pytest.raises(WrongTopicError, match=f"topic {topics.wal} .*{wrong}.*topicPrefix"):
        ensure_topics(connection, topics, SETTINGS, 60.0)


def test_more_replicas_than_kafka_has_brokers_are_refused_in_its_words(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    with pytest.raises(KafkaRefusedError, match=f"create topic {topic_prefix}wal.*set replication"):
        ensure_topics(connection, Topics(topic_prefix), TopicSettings(3, 2), 60.0)


def test_an_unreachable_kafka_is_reported_by_the_deadline() -> None:
    address = f"127.0.0.1:{ports.free_port('127.0.0.1')}"
    deadline_s = 1.0
    began = time.monotonic()
    with pytest.raises(KafkaUnreachableError, match=f"Kafka at {address} .*check that it runs"):
        ensure_topics(KafkaConnection(address), Topics("t."), SETTINGS, deadline_s)
    assert time.monotonic() - began >= deadline_s / 2
