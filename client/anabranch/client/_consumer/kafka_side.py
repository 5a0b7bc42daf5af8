"""How a consumer's assignment reads on Kafka: its group's properties, and a message's partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message

from anabranch.client._consumer.assignment import Assignment, Partition
from anabranch.client._topics.layout import TopicLayout


def in_group(
    kafka: Mapping[str, Any], assignment: Assignment, layout: TopicLayout
) -> dict[str, Any]:
    """`kafka`, the application's properties, with Kafka's address and the subscription's group."""
    return {
        "client.id": "anabranch",
        **kafka,
        "bootstrap.servers": assignment.bootstrap_servers or layout.bootstrap_servers,
        "group.id": assignment.group_id,
    }


def partition_of(message: Message) -> Partition:
    """The Kafka topic and partition that a message was read from."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition
