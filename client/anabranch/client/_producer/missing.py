"""`MissingTopics`: the segments whose Kafka topics are gone. What is sent to one fails at once.

librdkafka (2.16) says nothing for half a minute when a topic was deleted, and keeps what is under
way. Kafka says it when it is asked. So Kafka is asked for each topic whose appends take long, and
again until it has the topic. A broker may not know a new topic for a moment: its word counts when
Kafka repeats it for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.client._producer.kafka_writer import KafkaPartitionWriter
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.writer_pool import Spawn, WriterPool
from anabranch.wire.logging import get_logger

_SILENT_S: Final = 1.0  # an append takes milliseconds
_NEW_S: Final = 2.0
_logger = get_logger(__name__)


class MissingTopics:
    """Of one sender. `end` gives up all that the writer of a partition has under way."""

    def __init__(
        self,
        sender: Sender[KafkaPartitionWriter],
        writers: WriterPool,
        spawn: Spawn,
        end: Callable[[KafkaPartitionWriter], None],
        now: Callable[[], float],
    ) -> None:
        self._sender = sender
        self._writers = writers
        self._spawn = spawn
        self._end = end
        self._now = now
        self._since: dict[str, float] = {}  # by Kafka topic, when Kafka first said so
        self._why: dict[str, str] = {}  # of those that are gone
        self._asking: set[str] = set()

    def of(self, kafka_topic: str) -> str:
        """Why nothing can be sent to that topic; "" where it can."""
        return self._why.get(kafka_topic, "")

    def look(self, now: float) -> None:
        """Asks for what takes long, and for what is missing. To be called every `LOOK_S`."""
        late = now - _SILENT_S
        slow = {p.topic: p for p in self._sender.router.writers() if p.waiting_since() < late}
        layout = self._sender.router.layout
        wanted = {part.kafka_topic for part in (*layout.active, *layout.children)}
        for topic in (slow.keys() | self._since.keys()) - self._asking:
            writer = (
                slow[topic].segment_writer if topic in slow else next(iter(self._writers), None)
            )
            if writer is None or topic not in wanted:
                self._found(topic)
            else:
                self._asking.add(topic)
                self._spawn(self._ask(writer, topic))

    async def _ask(self, writer: SegmentWriter, topic: str) -> None:
        try:
            lacks = await writer.lacks(topic)
        finally:
            self._asking.discard(topic)
        if lacks is False:
            self._found(topic)
        elif lacks:
            since = self._since.setdefault(topic, self._now())
            if topic not in self._why and self._now() - since >= _NEW_S:
                self._lost(topic)

    def _lost(self, topic: str) -> None:
        of_topic = [p for p in self._sender.router.writers() if p.topic == topic and p.open]
        if not of_topic:
            return
        name, segment = self._sender.router.layout.topic, of_topic[0].segment.info.descriptor
        self._why[topic] = why = (
            f"Kafka has no topic {topic} any more, which held segment {segment} of topic://{name}: "
            "`anabranch segments restore` lets its range take messages again"
        )
        _logger.warning("producer.topic_missing", kafka_topic=topic, segment=segment)
        for partition in of_topic:
            partition.lost = why
            self._end(partition)

    def _found(self, topic: str) -> None:
        self._since.pop(topic, None)
        if self._why.pop(topic, None) is None:
            return
        for partition in self._sender.router.writers():
            if partition.topic == topic and partition.lost:
                partition.lost = ""
                partition.resume()
