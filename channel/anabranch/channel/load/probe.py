"""`LoadProbe`: the questions to Kafka about segments' traffic: ends, sizes, groups' positions.

Blocking calls, to be made by one thread, each with a deadline. The answer leaves out anything that
Kafka cannot tell now, because the caller asks again. One request goes to each Kafka broker for many
partitions.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

import msgspec
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from anabranch.channel.kafka.connection import (
    COORDINATOR_S,
    KafkaConnection,
    close_consumer,
)
from anabranch.channel.kafka.offsets import ASKING, LATEST, PartitionOffset, PartitionOffsets
from anabranch.channel.segments.sealing import SegmentTopic

_GROUPS_AT_ONCE: Final = 200
CLIENTS_MAX: Final = 32  # one for each group that was asked about last
_NEWEST: Final = 8  # messages of a partition whose sizes stand for all
_CLOSE_S: Final = 1.0

Totals = dict[str, int]  # by Kafka topic, all partitions together


class ActiveGroup(msgspec.Struct, frozen=True):
    """A consumer group and the topics that its members read now."""

    group: str
    topics: frozenset[str]


class LoadProbe:
    """Asks Kafka; reads a few messages, commits nothing, joins no group."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = connection.admin()
        self._group_admin: AdminClient | None = None
        self._consumer: Consumer = connection.consumer(
            auto_offset_reset="earliest",
            fetch_message_max_bytes=65_536,
            queued_min_messages=1,
            **ASKING,
        )
        self._offsets = PartitionOffsets(connection, self._consumer)
        self._groups: OrderedDict[str, Consumer] = OrderedDict()

    def close(self) -> None:
        """Ends all clients."""
        self._offsets.close()
        for consumer in self._groups.values():
            close_consumer(consumer, _CLOSE_S)

    def ends(self, topics: Iterable[SegmentTopic], timeout_s: float) -> dict[str, tuple[int, ...]]:
        """Asks each partition's end offset; leaves out topics that Kafka does not tell in full."""
        asked = list(topics)
        places = [(topic.name, number) for topic in asked for number in range(topic.partitions)]
        told = self._offsets.ask_each(places, LATEST, timeout_s)
        ends: dict[str, tuple[int, ...]] = {}
        for topic in asked:
            parts = [told[topic.name, number] for number in range(topic.partitions)]
            offsets = [each.offset for each in parts if isinstance(each, PartitionOffset)]
            if len(offsets) == topic.partitions:
                ends[topic.name] = tuple(offsets)
        return ends

    def sizes(self, ends: Mapping[str, Sequence[int]], timeout_s: float) -> dict[str, float]:
        """The average size of the newest messages' values in each topic, in bytes.

        `ends`: the partitions' end offsets. The answer lacks a topic whose newest messages cannot
        be read in time.
        """
        deadline = time.monotonic() + timeout_s
        busiest = {topic: max(range(len(e)), key=e.__getitem__) for topic, e in ends.items() if e}
        places = [
            TopicPartition(topic, number, max(0, ends[topic][number] - _NEWEST))
            for topic, number in busiest.items()
            if ends[topic][number]
        ]
        wanted = {place.topic for place in places}
        sizes: dict[str, list[int]] = {}
        if not places:
            return {}
        self._consumer.assign(places)
        try:
            while wanted and (left_s := deadline - time.monotonic()) > 0:
                first = self._consumer.poll(left_s)
                if first is None:
                    break
                for message in (first, *self._consumer.consume(_NEWEST * len(places), 0)):
                    topic, offset = message.topic() or "", message.offset()
                    if message.error() is not None or offset is None:
                        wanted.discard(topic)
                        continue
                    sizes.setdefault(topic, []).append(len(message))
                    if offset + 1 >= ends[topic][busiest[topic]]:
                        wanted.discard(topic)
        except KafkaException:
            pass
        finally:
            self._consumer.unassign()
        return {topic: sum(each) / len(each) for topic, each in sizes.items()}

    def committed(self, group: str, topics: Sequence[SegmentTopic], timeout_s: float) -> Totals:
        """Returns what the group has committed, in all partitions of each topic together."""
        asked = [
            TopicPartition(topic.name, number)
            for topic in topics
            for number in range(topic.partitions)
        ]
        try:
            answers = self._client(group).committed(asked, timeout=timeout_s)
        except KafkaException:
            return {}
        totals = dict.fromkeys((topic.name for topic in topics), 0)
        for each in answers:
            if each.error is not None:
                totals.pop(each.topic, None)
            elif each.offset > OFFSET_INVALID and each.topic in totals:
                totals[each.topic] += max(0, each.offset)
        return totals

    def groups(self, timeout_s: float) -> list[str]:
        """The consumer groups that have members."""
        states = {ConsumerGroupState.STABLE}
        try:
            future = self._admin.list_consumer_groups(states=states, request_timeout=timeout_s)
            return [each.group_id for each in future.result(timeout_s).valid]
        except (KafkaException, FutureTimeoutError):
            return []

    def readers(self, groups: Collection[str], timeout_s: float) -> list[ActiveGroup]:
        """Returns those of the groups whose members read something."""
        found = []
        wanted = list(groups)[:_GROUPS_AT_ONCE]
        if not wanted:
            return []
        admin = self._group_admin = self._group_admin or self._connection.admin()
        try:
            described_soon: dict[str, Any] = admin.describe_consumer_groups(
                wanted, request_timeout=COORDINATOR_S
            )
        except KafkaException:
            return []
        for group, future in described_soon.items():
            try:
                described = future.result(timeout_s)
            except KafkaException:
                continue
            except FutureTimeoutError:
                self._group_admin = (
                    None  # ends with what is under way, long before its time is over
                )
                continue
            read = frozenset(
                each.topic
                for member in described.members
                if member.assignment is not None
                for each in member.assignment.topic_partitions
            )
            if read:
                found.append(ActiveGroup(group, read))
        return found

    def _client(self, group: str) -> Consumer:
        """A client for the group, of which it is no member; the one asked last goes last."""
        client = self._groups.pop(group, None)
        while len(self._groups) >= CLIENTS_MAX:
            close_consumer(self._groups.popitem(last=False)[1], _CLOSE_S)
        self._groups[group] = client or self._connection.consumer(group_id=group)
        return self._groups[group]
