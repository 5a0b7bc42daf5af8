"""`LoadProbe`: the questions to Kafka about segments' traffic: ends and sizes.

Blocking calls, to be made by one thread, each with a deadline. The answer leaves out anything that
Kafka cannot tell now, because the caller asks again. One request goes to each Kafka broker for many
partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import ASKING, LATEST, PartitionOffset, PartitionOffsets
from anabranch.channel.segments.sealing import SegmentTopic

_NEWEST: Final = 8  # messages of a partition whose sizes stand for all


class LoadProbe:
    """Asks Kafka; reads a few messages, commits nothing, joins no group."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._consumer: Consumer = connection.consumer(
            auto_offset_reset="earliest",
            fetch_message_max_bytes=65_536,
            queued_min_messages=1,
            **ASKING,
        )
        self._offsets = PartitionOffsets(connection, self._consumer)

    def close(self) -> None:
        """Ends the client."""
        self._offsets.close()

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
