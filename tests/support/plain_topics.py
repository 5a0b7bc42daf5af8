"""Kafka topics that Anabranch has not made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.cimpl import NewTopic

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import LATEST, PartitionOffset, PartitionOffsets
from support.waiting import WAIT_S


@contextmanager
def plain_topics(
    connection: KafkaConnection,
    partitions: Mapping[str, int],
    settings: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Makes these topics, with so many partitions each, and deletes them afterwards."""
    made = [NewTopic(name, n, 1, config=dict(settings or {})) for name, n in partitions.items()]
    admin = connection.admin()
    for future in admin.create_topics(made, operation_timeout=WAIT_S).values():
        future.result(WAIT_S)
    await_leaders(connection, partitions)
    try:
        yield
    finally:
        for future in admin.delete_topics(list(partitions)).values():
            future.result(WAIT_S)


def await_leaders(connection: KafkaConnection, partitions: Mapping[str, int]) -> None:
    """Brokers hear of new topics a little later than the controller."""
    left = {(topic, number) for topic, count in partitions.items() for number in range(count)}
    offsets, until = PartitionOffsets(connection), time.monotonic() + WAIT_S
    try:
        while left:
            assert time.monotonic() < until, "the topics have no leaders in time"
            told = offsets.ask(left, LATEST, WAIT_S)
            left -= {place for place, each in told.items() if isinstance(each, PartitionOffset)}
    finally:
        offsets.close()
