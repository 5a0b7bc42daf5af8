"""What all of a consumer's clients of Kafka are set to, and how they name a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Message

Partition = tuple[str, int]

CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # told to us, who know whether anybody misses what is gone
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 50,
    "socket.nagle.disable": True,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "log_level": 3,  # errors; a lost connection comes back by itself
}


def partition_of(message: Message) -> Partition:
    """The Kafka topic and partition that a message was read from."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition
