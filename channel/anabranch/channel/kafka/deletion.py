"""The deletion of records without harm.

The administrator's `delete_records` has a fault that also keeps us from asking it for the ends of
partitions (`offsets`). If librdkafka 2.16 does not know a leader of all the partitions, two of its
threads do the same work on one state. There is no other call for it. But it takes the leaders from
its client's last news, and the fault does not show while everything has a leader there. So the
client hears of the topics first, and is asked for no partition without a leader.

A deletion of nothing, of records up to offset 0, is a question as well: see `delete_nothing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, TopicMetadata

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.offsets import Place


def led(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> set[Place]:
    """The partitions that have a leader, as Kafka tells this client now. Raises KafkaException."""
    found: set[Place] = set()
    for name in topics:  # librdkafka would remember nothing of all topics together
        found |= led_of(name, admin.list_topics(name, timeout=timeout_s).topics[name])
    return found


def led_of(name: str, topic: TopicMetadata) -> set[Place]:
    """Those of one topic."""
    return {(name, number) for number, part in topic.partitions.items() if part.leader >= 0}


def delete_records(
    admin: AdminClient, up_to: Mapping[Place, int], leading: set[Place], **timeouts_s: float
) -> dict[Place, Future[Any]]:
    """Has each partition's records below its offset deleted, except in partitions without a leader.

    `leading`: from `led`, for the same client and just now. `timeouts_s`: librdkafka's names for
    them.
    """
    asked = [TopicPartition(*place, at) for place, at in up_to.items() if place in leading]
    if not asked:
        return {}
    futures = admin.delete_records(asked, **timeouts_s)
    return {(place.topic, place.partition): each for place, each in futures.items()}


def delete_nothing(
    admin: AdminClient, places: Iterable[Place], leading: set[Place], deadline: Deadline, doing: str
) -> None:
    """Returns once the leader of each of the partitions has answered that nothing is deleted.

    The leader answers after the holder of the partition's lock has given it up, and every live
    follower has fetched once. Until then the leader does not know the begins of their copies.
    `leading`: the known ones. Raises the errors of `Deadline`.
    """
    left = set(places)
    while left:
        nothing = dict.fromkeys(sorted(left), 0)
        # The leader waits no longer: it reads nothing more of that connection meanwhile.
        left_s = deadline.left_s(doing)
        asked = delete_records(admin, nothing, leading, operation_timeout=left_s)
        for place, future in asked.items():
            if not isinstance(deadline.answer(future, doing), KafkaError):
                left.discard(place)
        if left:
            deadline.pause(doing)
            try:
                leading = led(admin, {topic for topic, _ in left}, deadline.left_s(doing))
            except KafkaException as error:
                deadline.passing(error.args[0], doing)
