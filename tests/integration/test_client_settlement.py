"""How many messages of a producer a partition holds, asked of a real Kafka."""

from __future__ import annotations

import json

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.wire.kafka import producer_state
from support.quiet import QUIET
from support.waiting import WAIT_S


def _leader(kafka: EmbeddedKafka) -> tuple[str, int]:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return host, int(port)


def _make(kafka: EmbeddedKafka, topic: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(WAIT_S)


def _send(kafka: EmbeddedKafka, topic: str, count: int) -> int:
    """Sends to partition 1 and returns the producer's id at Kafka."""
    told: list[str] = []
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": kafka.bootstrap_servers,
            "enable.idempotence": True,
            "statistics.interval.ms": 50,
            "stats_cb": told.append,
        }
    )
    for _ in range(count):
        producer.produce(topic, b"same", b"key", partition=1)
        assert producer.flush(WAIT_S) == 0
    told.clear()
    while not told:
        producer.poll(WAIT_S)
    return int(json.loads(told[-1])["eos"]["producer_id"])


def test_the_leader_counts_each_producer_by_itself(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}t"
    _make(kafka, topic)
    first, second = _send(kafka, topic, 3), _send(kafka, topic, 5)

    states = producer_state.ask(_leader(kafka), (topic, 1), 8, {}, WAIT_S)
    assert {state.producer_id: state.last_sequence + 1 for state in states} == {first: 3, second: 5}
    assert all(state.epoch == 0 for state in states)
    assert producer_state.ask(_leader(kafka), (topic, 0), 0, {}, WAIT_S) == []
