"""How records are deleted without harm.

The administrator's `delete_records` has the fault for which nobody asks it where partitions end
(`offsets`): where librdkafka 2.16 does not know a leader of all that it is asked for, two of its
threads do the same work on one state. There is no other call for it. But it looks who leads at what
its client was told last, and the fault does not show while everything has a leader there. So the
client hears of the topics first, and is asked for no partition without a leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, TopicMetadata

from anabranch.channel.kafka.offsets import Place


def led(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> set[Place]:
    """The partitions that have a leader, as Kafka tells this client now. Raises KafkaException."""
    found: set[Place] = set()
    for name in topics:  # of all topics together, librdkafka would remember nothing
        found |= led_of(name, admin.list_topics(name, timeout=timeout_s).topics[name])
    return found


def led_of(name: str, topic: TopicMetadata) -> set[Place]:
    """Those of one topic."""
    return {(name, number) for number, part in topic.partitions.items() if part.leader >= 0}


def delete_records(
    admin: AdminClient, up_to: Mapping[Place, int], leading: set[Place]
) -> dict[Place, Future[Any]]:
    """Has each partition's records below its offset deleted; not of those that nobody leads.

    `leading`: by `led`, of the same client and just now.
    """
    asked = [TopicPartition(*place, at) for place, at in up_to.items() if place in leading]
    if not asked:
        return {}
    futures = admin.delete_records(asked)
    return {(place.topic, place.partition): each for place, each in futures.items()}
