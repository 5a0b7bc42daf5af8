"""Asks Kafka for the ends of the sealed segments, and for the commits of their stream
subscriptions.

It asks after the log was read, so that answers can only be later. A topic that was pruned meanwhile
is gone, and is left out. It asks for commits first. Kafka forgets them with their topic, so a topic
that is there afterwards had its commits before. A missing group proves nothing if the log goes on
with its subscription or topic, because that may be deleted by now.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.channel.errors import LogLostError, LogTrimmedError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer, is_passing
from anabranch.channel.kafka.offsets import ASKING, EARLIEST, LATEST, PartitionOffsets, Place
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import read_until
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.core.log.records import subscription_key, topic_key
from anabranch.core.subscriptions.draining import unread
from anabranch.core.subscriptions.known_positions import mark_of, parts_of
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

# At the end, or before the first offset that is still kept.
_NOTHING_LEFT: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)


def ask_kafka(
    connection: KafkaConnection, prefix: str, left: TopicsLeft, read_to: int
) -> SegmentEnds:
    """Asks Kafka about `left.sealed`. `read_to` is the end of the log that this is known from.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    asker = _Asker(connection, prefix, read_to)
    segments = {(one.topic, one.segment.segment_id): one for one in left.sealed}
    committed = asker.committed(left.drains, segments)
    there = asker.topics()
    found = {
        place: asker.partitions(one)
        for place, one in segments.items()
        if asker.topic_of(one) in there
    }
    behind = {
        (topic, segment_id)
        for (topic, _, segment_id), offsets in committed.items()
        for end, at in zip(segments[topic, segment_id].segment.end_offsets, offsets, strict=True)
        if at is not None and unread(end, at)
    }
    in_doubt = {place: found[place] for place in found if place in behind}
    begins = asker.offsets(in_doubt, EARLIEST)  # before the ends: a topic that has those had these
    ends = asker.of_messages(asker.offsets(found, LATEST), segments)
    return SegmentEnds(asker.without_opened(ends, segments), committed, begins)


class _Asker:
    """Questions to Kafka, all before one deadline."""

    def __init__(self, connection: KafkaConnection, prefix: str, read_to: int) -> None:
        self._connection = connection
        self._prefix = prefix
        self._read_to = read_to
        self._deadline = time.monotonic() + _DEADLINE_S
        self._admin: AdminClient = connection.admin()

    def topic_of(self, one: SealedSegment) -> str:
        return kafka_topic(self._prefix, one.topic, one.incarnation, one.segment)

    def partitions(self, one: SealedSegment) -> list[TopicPartition]:
        name = self.topic_of(one)
        return [TopicPartition(name, bucket) for bucket in range(one.segment.buckets)]

    def topics(self) -> frozenset[str]:
        """Returns the names of all topics that can be used."""
        doing = "to list topics"
        try:
            found = self._admin.list_topics(timeout=self._left_s(doing)).topics
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        return frozenset(name for name, topic in found.items() if topic.error is None)

    def committed(
        self, drains: Sequence[StreamDrain], segments: dict[_Place, SealedSegment]
    ) -> dict[tuple[str, str, int], tuple[int | None, ...]]:
        """Returns the commits of the subscription's group for each drained segment named."""
        found: dict[tuple[str, str, int], tuple[int | None, ...]] = {}
        unknown: dict[str, list[tuple[str, str, int]]] = {}  # for groups without a commit
        for drain in drains:
            drained = [each.segment_id for each in drain.drained]
            places = [(drain.topic, each) for each in drained]
            wanted = [
                part
                for place in places
                if place in segments
                for part in self.partitions(segments[place])
            ]
            if not wanted:
                continue
            group = kafka_group(self._prefix, drain.topic, drain.name, drain.group_offset)
            offsets = self._offsets(group, mark_of(drain.created_offset), wanted)
            told = {
                (drain.topic, drain.name, place[1]): tuple(
                    offsets.get((part.topic, part.partition), _UNKNOWN)
                    for part in self.partitions(segments[place])
                )
                for place in places
                if place in segments
            }
            found |= told
            if all(at == _UNKNOWN for at in offsets.values()):
                unknown[group] = list(told)
        absent = unknown.keys() - self._groups() if unknown else set()
        news = self._news() if absent else frozenset()
        for group in absent:
            for key in unknown[group]:
                topic, name, _ = key
                if news is None or {topic_key(topic), subscription_key(topic, name)} & news:
                    del found[key]
        return found

    def _news(self) -> frozenset[str] | None:
        """Returns the keys of later records of the log, None if it does not hold all of those."""
        topic = Topics(self._prefix).wal
        doing = f"to read {topic}"
        try:
            reader = KafkaLogReader(
                self._connection, topic, self._read_to, self._left_s(doing), to_end=True
            )
        except (LogTrimmedError, LogLostError):
            return None
        try:
            _, end = reader.offsets(self._left_s(doing))
            read = read_until(reader, end, lambda: self._connection.unreachable(doing))
            return frozenset(
                (entry.key or b"").decode(errors="replace") for some in read for entry in some
            )
        except (LogTrimmedError, LogLostError):
            return None
        finally:
            reader.close()

    def _groups(self) -> frozenset[str]:
        """Returns the names of all groups that Kafka tells of."""
        doing = "to list groups"
        left_s = self._left_s(doing)
        try:
            answer = self._admin.list_consumer_groups(request_timeout=left_s).result()
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        if answer.errors:  # a broker does not tell of its own
            raise self._connection.explained(answer.errors[0], doing)
        return frozenset(each.group_id for each in answer.valid)

    def _offsets(
        self, group: str, mark: str, wanted: list[TopicPartition]
    ) -> dict[tuple[str, int], int | None]:
        """Returns a group's committed offsets with that mark, None for one with another mark.

        It does not use the admin client, because librdkafka 2.16 crashes there when the group's
        coordinator has just changed.
        """
        doing = f"to tell the offsets of group {group}"
        reader = self._connection.consumer(group_id=group)
        try:
            answer = reader.committed(wanted, self._left_s(doing))
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        finally:
            close_consumer(reader)
        return {(part.topic, part.partition): _committed(part, mark) for part in answer}

    def offsets(
        self, wanted: dict[_Place, list[TopicPartition]], timestamp_ms: int
    ) -> dict[_Place, tuple[int, ...]]:
        """Returns the EARLIEST or LATEST offset of every partition.
        It leaves out a segment whose topic is gone by now.
        """
        left = [(part.topic, part.partition) for parts in wanted.values() for part in parts]
        found: dict[tuple[str, int], int] = {}
        offsets = PartitionOffsets(self._connection)
        try:
            while left:
                doing = f"to tell the offsets of {left[0][0]}"
                answers = offsets.ask(left, timestamp_ms, min(_TRY_S, self._left_s(doing)))
                left = []
                for place, answer in answers.items():
                    if not isinstance(answer, KafkaError):
                        found[place] = answer.offset
                    elif answer.code() in _GONE:
                        continue
                    elif is_passing(answer):
                        left.append(place)
                    else:
                        doing = f"to tell the offsets of {place[0]}"
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

    def of_messages(
        self, ends: dict[_Place, tuple[int, ...]], segments: dict[_Place, SealedSegment]
    ) -> dict[_Place, tuple[int, ...]]:
        """Returns the ends. A partition without a message behind its logged end gets the logged
        one.

        A transaction that was open at the seal ends behind it (`channel.segments.sealing`).
        """
        behind: dict[Place, int] = {}
        for place, found in ends.items():
            one = segments[place]
            sealed = zip(self.partitions(one), one.segment.end_offsets, found, strict=False)
            behind |= {(part.topic, part.partition): at for part, at, end in sealed if end > at}
        if not behind:
            return ends
        without = behind.keys() - self._with_messages(behind)
        return {
            place: tuple(
                behind[key] if (key := (part.topic, part.partition)) in without else end
                for part, end in zip(self.partitions(segments[place]), found, strict=True)
            )
            for place, found in ends.items()
        }

    def without_opened(
        self, ends: dict[_Place, tuple[int, ...]], segments: dict[_Place, SealedSegment]
    ) -> dict[_Place, tuple[int, ...]]:
        """Returns the ends without adopted Kafka topics that may have been given back since."""
        grown = [
            place
            for place, found in ends.items()
            if segments[place].segment.is_legacy and found != segments[place].segment.end_offsets
        ]
        news = self._news() if grown else frozenset()
        gone = {place for place in grown if news is None or topic_key(place[0]) in news}
        return {place: found for place, found in ends.items() if place not in gone}

    def _with_messages(self, begins: Mapping[Place, int]) -> set[Place]:
        """Returns the partitions that have a message at the offset or later.
        It reads one message of each.
        """
        found: set[Place] = set()
        reader = self._connection.consumer(**ASKING, enable_partition_eof=True)
        try:
            reader.assign([TopicPartition(*place, at) for place, at in begins.items()])
            left = set(begins)
            while left:
                topic, number = min(left)
                doing = f"to read what {topic}[{number}] holds behind its end"
                for message in reader.consume(len(left), min(_RETRY_S, self._left_s(doing))):
                    place = (message.topic() or "", message.partition() or 0)
                    error = message.error()
                    if error is None:
                        found.add(place)
                    elif error.code() in _GONE:
                        left = {each for each in left if each[0] != place[0]}
                    elif error.code() not in _NOTHING_LEFT:
                        if not is_passing(error):
                            raise self._connection.explained(KafkaException(error), doing)
                        continue
                    if place in left:
                        left.discard(place)
                        reader.incremental_unassign([TopicPartition(*place)])
        finally:
            close_consumer(reader)
        return found

    def _left_s(self, doing: str) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._connection.unreachable(doing)
        return left


def _committed(part: TopicPartition, mark: str) -> int | None:
    if part.offset < 0:
        return _UNKNOWN
    return part.offset if parts_of(part.metadata or "")[0] == mark else None
