"""Asks Kafka where the sealed segments end, and what their stream subscriptions have committed.

After the log was read, so that what is found can only be later: a topic that was pruned meanwhile
is not there any more, and is left out. Commits are asked for first: Kafka forgets them with their
topic, so a topic that is there afterwards had its commits before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import LATEST, PartitionOffsets
from anabranch.channel.log.kafka_log import is_passing
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.checks.topics.topic_checks import (
    SealedSegment,
    StreamDrain,
    TopicsLeft,
)

_Place = tuple[str, int]  # a topic of the cluster, and a segment's id

_DEADLINE_S: Final = 60.0  # for all questions together
_TRY_S: Final = 10.0
_RETRY_S: Final = 0.05
_UNKNOWN: Final = -1
_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.GROUP_ID_NOT_FOUND,
    }
)


def ask_kafka(connection: KafkaConnection, prefix: str, left: TopicsLeft) -> SegmentEnds:
    """Asks Kafka about `left.sealed`. Raises KafkaUnreachableError or KafkaRefusedError."""
    asker = _Asker(connection, prefix)
    segments = {(one.topic, one.segment.segment_id): one for one in left.sealed}
    committed = asker.committed(left.drains, segments)
    there = asker.topics()
    found = {
        place: asker.partitions(one)
        for place, one in segments.items()
        if asker.topic_of(one) in there
    }
    return SegmentEnds(asker.ends(found), committed)


class _Asker:
    """Questions to Kafka, all before one deadline."""

    def __init__(self, connection: KafkaConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._deadline = time.monotonic() + _DEADLINE_S
        self._admin: AdminClient = connection.admin()

    def topic_of(self, one: SealedSegment) -> str:
        return kafka_topic(self._prefix, one.topic, one.incarnation, one.segment)

    def partitions(self, one: SealedSegment) -> list[TopicPartition]:
        name = self.topic_of(one)
        return [TopicPartition(name, bucket) for bucket in range(one.segment.buckets)]

    def topics(self) -> frozenset[str]:
        """The names of all topics that can be used."""
        doing = "to list topics"
        try:
            found = self._admin.list_topics(timeout=self._left_s(doing)).topics
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        return frozenset(name for name, topic in found.items() if topic.error is None)

    def committed(
        self, drains: Sequence[StreamDrain], segments: dict[_Place, SealedSegment]
    ) -> dict[tuple[str, str, int], tuple[int, ...]]:
        """Asks what the subscription's group has committed of each drained segment named."""
        found: dict[tuple[str, str, int], tuple[int, ...]] = {}
        for drain in drains:
            places = [(drain.topic, each) for each in drain.drained]
            wanted = [
                part
                for place in places
                if place in segments
                for part in self.partitions(segments[place])
            ]
            if not wanted:
                continue
            group = kafka_group(self._prefix, drain.topic, drain.name, drain.created_offset)
            offsets = self._offsets(group, wanted)
            for each in drain.drained:
                one = segments.get((drain.topic, each))
                if one is not None:
                    found[drain.topic, drain.name, each] = tuple(
                        offsets.get((part.topic, part.partition), _UNKNOWN)
                        for part in self.partitions(one)
                    )
        return found

    def _offsets(self, group: str, wanted: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """Asks what a group has committed; not by the admin client, in which librdkafka 2.16
        crashes when the group's coordinator has just changed.
        """
        doing = f"to tell the offsets of group {group}"
        reader = self._connection.consumer(group_id=group)
        try:
            answer = reader.committed(wanted, self._left_s(doing))
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        finally:
            close_consumer(reader)
        return {(part.topic, part.partition): max(part.offset, _UNKNOWN) for part in answer}

    def ends(self, wanted: dict[_Place, list[TopicPartition]]) -> dict[_Place, tuple[int, ...]]:
        """Returns where every partition ends; a segment whose topic is gone by now is left out."""
        left = [(part.topic, part.partition) for parts in wanted.values() for part in parts]
        found: dict[tuple[str, int], int] = {}
        offsets = PartitionOffsets(self._connection)
        try:
            while left:
                doing = f"to tell the end of {left[0][0]}"
                answers = offsets.ask(left, LATEST, min(_TRY_S, self._left_s(doing)))
                left = []
                for place, answer in answers.items():
                    if not isinstance(answer, KafkaError):
                        found[place] = answer.offset
                    elif answer.code() in _GONE:
                        continue
                    elif is_passing(answer):
                        left.append(place)
                    else:
                        doing = f"to tell the end of {place[0]}"
                        raise self._connection.explained(KafkaException(answer), doing)
                if left:
                    time.sleep(_RETRY_S)
        finally:
            offsets.close()
        return {
            place: tuple(found[part.topic, part.partition] for part in parts)
            for place, parts in wanted.items()
            if all((part.topic, part.partition) in found for part in parts)
        }

    def _left_s(self, doing: str) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._connection.unreachable(doing)
        return left
