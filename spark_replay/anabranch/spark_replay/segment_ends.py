"""Asks Kafka where the sealed segments end, and what their stream subscriptions have committed.

After the log was read, so that what is found can only be later: a topic that was pruned meanwhile
is not there any more, and is left out. Commits are asked for first: Kafka forgets them with their
topic, so a topic that is there afterwards had its commits before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.channel.kafka.connection import LATEST_OFFSET, KafkaConnection, close_consumer
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.spark_replay.checks.segments import SegmentEnds
from anabranch.spark_replay.checks.topics import SealedSegment, StreamDrain, TopicsLeft

_T = TypeVar("_T")
_Place = tuple[str, int]  # a topic of the cluster, and a segment's id

_DEADLINE_S: Final = 60.0  # for all questions together
_PARTITIONS_AT_ONCE: Final = 2_000
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
        every = [part for parts in wanted.values() for part in parts]
        found: dict[tuple[str, int], int] = {}
        for start in range(0, len(every), _PARTITIONS_AT_ONCE):
            some = dict.fromkeys(every[start : start + _PARTITIONS_AT_ONCE], LATEST_OFFSET)
            for part, future in self._admin.list_offsets(some).items():
                answer = self._answer(future, f"to tell the end of {part.topic}")
                if answer is not None:
                    found[part.topic, part.partition] = answer.offset
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

    def _answer(self, future: Future[_T], doing: str) -> _T | None:
        """None for what does not exist."""
        try:
            return future.result(self._left_s(doing))
        except FutureTimeoutError:
            raise self._connection.unreachable(doing) from None
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return None
            raise self._connection.explained(error, doing) from None
