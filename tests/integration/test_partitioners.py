"""Keys lie where real producers put them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Message

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.partitioners import Partitioner, murmur2, partition_of
from support.plain_topics import plain_topics
from support.waiting import WAIT_S

KEYS = [random.Random(length).randbytes(length) for length in range(51)]
PARTITIONS = (1, 2, 3, 8, 12, 1000)
LIBRDKAFKA = {
    "consistent_random": Partitioner.CRC32,
    "murmur2_random": Partitioner.MURMUR2,
    "fnv1a_random": Partitioner.FNV1A,
}


def test_java_puts_keys_where_murmur2_does(java: Any) -> None:
    clients = java.org.apache.kafka
    hashed = clients.common.utils.Utils.murmur2
    placed = clients.clients.producer.internals.BuiltInPartitioner.partitionForKey
    for key in KEYS:
        assert hashed(key) & 0xFFFFFFFF == murmur2(key)
        for partitions in PARTITIONS:
            told = placed(key, partitions)
            assert partition_of(Partitioner.MURMUR2, key, partitions) == told


@pytest.mark.parametrize(
    "partitions", [PARTITIONS[:-1], pytest.param(PARTITIONS[-1:], marks=pytest.mark.long)]
)
def test_librdkafka_puts_keys_where_its_partitioners_do(
    connection: KafkaConnection, topic_prefix: str, partitions: tuple[int, ...]
) -> None:
    counts = {f"{topic_prefix}{each}": each for each in partitions}
    with plain_topics(connection, counts):
        for name, partitioner in LIBRDKAFKA.items():
            told = _sent(connection, counts, name)
            assert len(told) == len(counts) * len(KEYS)
            for topic, key, found in told:
                if key:  # the empty one goes anywhere
                    assert partition_of(partitioner, key, counts[topic]) == found


def _sent(
    connection: KafkaConnection, topics: Iterable[str], partitioner: str
) -> list[tuple[str, bytes, int]]:
    """Sends all keys to each topic, and returns their partitions."""
    told: list[tuple[str, bytes, int]] = []

    def noted(error: object, message: Message) -> None:
        assert error is None
        told.append((str(message.topic()), message.key() or b"", message.partition() or 0))

    producer = connection.producer(partitioner=partitioner)
    for topic in topics:
        for key in KEYS:
            producer.produce(topic, b"value", key, on_delivery=noted)
    assert producer.flush(WAIT_S) == 0
    return told
