"""Where applications store what they made of messages, and how far they have read, together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.client import Checkpoint
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.topics.kafka_names import kafka_topic
from simulation.old_topics import is_plain
from simulation.scheduler import ViolationError
from simulation.segment_store import Message, Place
from simulation.shared_keys import is_shared

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

Bucket = tuple[int, int]  # segment id, bucket


class Sink:
    """One checkpoint subscription's. What is stored late is stored all the same: it is not fenced.

    `whole`: a checkpoint takes the place of what was stored; else of that of its buckets.
    """

    def __init__(self, world: TopicWorld, *, whole: bool) -> None:
        self.positions: dict[Bucket, int] = {}
        self.whole = whole
        self.saves = 0
        self.plain: set[Message] = set()  # stored, of Kafka's own clients
        self._world = world
        self._reached: dict[Bucket, int] = {}  # the furthest ever stored
        self._applied: dict[str, int] = {}  # by key: up to which message

    def store(self, checkpoint: Checkpoint, messages: list[Message]) -> None:
        """One transaction."""
        self.saves += 1
        for message in messages:
            if is_plain(message.key):
                self.plain.add(message)
                continue
            if is_shared(message.key):
                continue  # judged by cause and effect
            if message.sequence > self.applied(message.key) + 1:
                raise ViolationError(
                    f"{message} was stored with a checkpoint after {self.applied(message.key)}"
                )
            if message.sequence > self._applied.get(message.key, 0):
                self._applied[message.key] = message.sequence
        found = {
            (segment_id, bucket): offset
            for segment_id, buckets in checkpoint.positions.items()
            for bucket, offset in buckets.items()
        }
        self.positions = found if self.whole else self.positions | found
        for bucket, offset in found.items():
            self._reached[bucket] = max(offset, self._reached.get(bucket, 0))

    def is_behind(self, bucket: Bucket) -> bool:
        """Whether something late has taken the place of what was stored further on."""
        return self.positions.get(bucket, 0) < self._reached.get(bucket, 0)

    def is_late(self, topic: ScalableTopic) -> bool:
        """Whether that is so of any bucket that it names, or that the topic still has."""
        there = {part.segment_id for part in topic.segments}
        named = {bucket for bucket in self._reached if bucket[0] in there}
        return any(map(self.is_behind, named | self.positions.keys()))

    def catch_up(self) -> None:
        """Goes back to the furthest ever stored."""
        self.positions = dict(self._reached)

    def applied(self, key: str) -> int:
        """Up to which message of a key everything is stored, or never was in Kafka."""
        return self._world.checks.skipped(key, self._applied.get(key, 0))

    def delivered(self, message: Message, place: Place) -> None:
        """A child begins only when what its parents had is stored."""
        if is_shared(message.key) or is_plain(message.key):
            return
        before = Message(message.key, message.sequence - 1)
        seeks = self._world.checks.seeks
        source, there = seeks.place_of(before), seeks.place_of(message)
        if source not in (None, there) and self.applied(message.key) < before.sequence:
            raise ViolationError(f"{message} was delivered from {place} before {before} was stored")

    def must_have(self, topic: ScalableTopic, name: str, segment_id: int) -> None:
        """The segment is called drained."""
        part = topic.layout.segment(segment_id)
        for bucket, end in enumerate(part.end_offsets):
            reached = max(self._reached.get((segment_id, bucket), 0), part.first_offset(bucket))
            if reached < end:
                place = (kafka_topic("", name, topic.incarnation, part), bucket)
                raise ViolationError(f"{place} is called drained, and {reached} of {end} is stored")
