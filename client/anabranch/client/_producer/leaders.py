"""The news of Kafka about a topic's segments: `Leaders`, the broker that leads each partition, and
`MissingTopics`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

import msgspec

from anabranch.client._errors import SegmentMissingError
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Sender
from anabranch.wire.errors import WireError
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.metadata import KafkaMetadata, TopicMetadata
from anabranch.wire.kafka.producing import KafkaCode
from anabranch.wire.kafka.protocol import Address
from anabranch.wire.logging import get_logger

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

_ASK_S_MAX: Final = 5.0
_AGAIN_S: Final = 0.005
_AGAIN_S_MAX: Final = 0.5
_NEW_S: Final = 2.0
_PASSING: Final = frozenset({KafkaCode.LEADER_NOT_AVAILABLE, KafkaCode.REQUEST_TIMED_OUT})

_logger = get_logger(__name__)


class Led(msgspec.Struct, frozen=True):
    """The leader of a partition, and the number of its copies."""

    address: Address
    copies: int


class Leaders:
    """Asks Kafka for the wanted topics until it has told. It calls `told` after each answer.

    `missing` has the topics that Kafka does not have, each with the time since when. `refused` has
    the topics that Kafka will not tell of, with its error.
    """

    def __init__(
        self,
        links: KafkaLinks,
        spawn: Spawn,
        told: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.links = links
        self.missing: dict[str, float] = {}
        self.refused: dict[str, int] = {}
        self._spawn = spawn
        self._told = told
        self._now = now
        self._led: dict[str, dict[int, Led]] = {}
        self._wanted: set[str] = set()
        self._more = asyncio.Event()  # something is wanted that was not
        self._heard = asyncio.Event()  # an answer came, or none did
        self._asking: asyncio.Task[None] | None = None

    def of(self, topic: str, partition: int) -> Led | None:
        """Returns the leader of a partition.
        None means that Kafka has not told yet, and is being asked.
        """
        found = self._led.get(topic, {}).get(partition)
        if found is None and topic not in self.refused:
            self.ask([topic])
        return found

    def knows(self, topic: str) -> bool:
        """Returns True if Kafka has told of that topic."""
        return topic in self._led

    def brokers(self) -> set[Address]:
        """Returns all brokers that lead something here."""
        return {led.address for each in self._led.values() for led in each.values()}

    def forget(self, topic: str) -> None:
        """Asks for a topic again, because Kafka's last answer is out of date."""
        self._led.pop(topic, None)
        self.ask([topic])

    def forget_broker(self, address: Address) -> None:
        """Asks again for all topics that this broker leads."""
        gone = [
            topic
            for topic, each in self._led.items()
            if any(led.address == address for led in each.values())
        ]
        for topic in gone:
            self.forget(topic)

    def keep(self, topics: Collection[str]) -> None:
        """Forgets all topics but these."""
        for known in (self._led, self.missing, self.refused):
            for topic in known.keys() - set(topics):
                del known[topic]
        self._wanted.intersection_update(topics)

    def ask(self, topics: Collection[str]) -> None:
        """Asks for these topics, soon."""
        if not self._wanted.issuperset(topics):
            self._more.set()
        self._wanted.update(topics)
        if self._asking is None and self._wanted:
            self._asking = self._spawn(self._ask())

    async def ready(self, topics: Collection[str]) -> None:
        """Returns when Kafka has answered for all these topics, also if it lacks one or will not
        tell.
        """
        self.ask(topics)
        while self._asking is not None and not self._has_told(topics):
            self._heard.clear()
            await self._heard.wait()

    def _has_told(self, topics: Collection[str]) -> bool:
        return set(topics) <= self._led.keys() | self.missing.keys() | self.refused.keys()

    async def _ask(self) -> None:
        pause_s = _AGAIN_S
        try:
            while self._wanted:
                topics, self._wanted = self._wanted, set()
                self._more.clear()
                try:
                    self._learn(topics, await self.links.metadata(topics, _ASK_S_MAX))
                except (OSError, WireError) as error:
                    self._wanted |= topics
                    _logger.debug("producer.leaders_not_told", why=str(error))
                self._heard.set()
                self._told()
                if self._wanted:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self._more.wait()
                    pause_s = min(2 * pause_s, _AGAIN_S_MAX)
        finally:
            self._asking = None
            self._heard.set()

    def _learn(self, topics: Collection[str], found: KafkaMetadata) -> None:
        for topic in topics:
            told = found.topics.get(topic, int(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))
            if isinstance(told, TopicMetadata):
                self.missing.pop(topic, None)
                self.refused.pop(topic, None)
                self._led[topic] = {
                    number: Led(found.brokers[each.leader], each.replicas)
                    for number, each in told.partitions.items()
                    if each.leader in found.brokers
                }
                if len(self._led[topic]) < len(told.partitions):
                    self._wanted.add(topic)
            elif told == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.missing.setdefault(topic, self._now())
                self._wanted.add(topic)
            elif told in _PASSING:
                self._wanted.add(topic)
            else:
                self.refused[topic] = told


class MissingTopics:
    """The segments of one sender whose Kafka topics are gone. Messages to such a segment fail at
    once.

    A broker may not know a new topic for a moment, so its word counts when Kafka repeats it for
    some seconds. Kafka is asked again until it has the topic.
    """

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
