"""`MissingTopics`: the segments whose Kafka topics are gone. Messages to such a segment fail at
once.

A broker may not know a new topic for a moment, so its word counts when Kafka repeats it for some
seconds. Kafka is asked again until it has the topic.
"""

from __future__ import annotations

from typing import Final

from anabranch.client._errors import SegmentMissingError
from anabranch.client._producer.leaders import Leaders
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Sender
from anabranch.wire.logging import get_logger

_NEW_S: Final = 2.0
_logger = get_logger(__name__)


class MissingTopics:
    """The missing topics of one sender."""

    def __init__(self, sender: Sender[PartitionWriter], leaders: Leaders) -> None:
        self._sender = sender
        self._leaders = leaders
        self._why: dict[str, str] = {}  # the reason for each topic that is gone

    def of(self, kafka_topic: str) -> str:
        """Returns the reason why nothing can be sent to that topic, "" if messages can."""
        return self._why.get(kafka_topic, "")

    def look(self, now: float) -> None:
        """Takes note of Kafka's answers. Call it every second or so."""
        layout = self._sender.router.layout
        self._leaders.keep({part.kafka_topic for part in (*layout.active, *layout.children)})
        missing = self._leaders.missing
        for topic in self._why.keys() - missing.keys():
            self._found(topic)
        for topic, since in list(missing.items()):
            if topic not in self._why and now - since >= _NEW_S:
                self._lost(topic)

    def _lost(self, topic: str) -> None:
        of_topic = [w for w in self._sender.router.writers() if w.segment.kafka_topic == topic]
        if not of_topic:
            return
        name, segment = self._sender.router.layout.topic, of_topic[0].segment.info.descriptor
        self._why[topic] = why = (
            f"Kafka has no topic {topic} any more, which held segment {segment} of topic://{name}: "
            "`anabranch segments restore` lets its range take messages again"
        )
        _logger.warning("producer.topic_missing", kafka_topic=topic, segment=segment)
        for writer in of_topic:
            writer.lost = why
            self._sender.give_up(writer, why, SegmentMissingError(why))

    def _found(self, topic: str) -> None:
        del self._why[topic]
        for writer in self._sender.router.writers():
            if writer.segment.kafka_topic == topic:
                writer.lost = ""
