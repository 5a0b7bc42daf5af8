"""Kafka's leaders in memory, as a consumer that asks for offsets sees them.

Like librdkafka, it believes what it once heard of a topic until it is told to ask anew, and answers
nothing of a request when one leader keeps silent or refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

NO_LEADER: Final = -1


@dataclass(slots=True)
class ToldOffset:
    """What a consumer is told of one partition."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int | None = None
    error: KafkaError | None = None


class Leaders:
    """Connection and consumer in one. `topics`: the leader of each partition, by topic.

    `silent`: leaders that answer nothing. Each partition ends at 5.
    """

    def __init__(self, topics: Mapping[str, Sequence[int]], silent: frozenset[int]) -> None:
        self.topics = dict(topics)
        self.silent = silent
        self.refused: dict[str, int] = {}  # topics, and the code with which they are
        self.requests: list[list[tuple[str, int]]] = []
        self.settings: dict[str, object] = {}
        self.is_closed = False
        self._known = dict(topics)
        self._lock = threading.Lock()

    def consumer(self, **settings: object) -> Leaders:
        self.settings = settings
        return self

    def admin(self) -> Leaders:
        return self

    def poll(self, _timeout: float) -> None:
        """It has heard nothing."""

    def close(self) -> None:
        self.is_closed = True

    def list_topics(self, name: str | None = None, timeout: float = 0.0) -> SimpleNamespace:
        """What is so now, and is believed from then on."""
        self._known = dict(self.topics)
        told = {
            topic: SimpleNamespace(
                error=KafkaError(self.refused[topic]) if topic in self.refused else None,
                partitions={n: SimpleNamespace(leader=each) for n, each in enumerate(leaders)},
            )
            for topic, leaders in self.topics.items()
            if name in (None, topic)
        }
        if name is not None and name not in told:
            unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            told[name] = SimpleNamespace(error=unknown, partitions={})
        return SimpleNamespace(topics=told)

    def offsets_for_times(
        self, asked: Sequence[TopicPartition], timeout: float
    ) -> list[ToldOffset]:
        with self._lock:
            self.requests.append([(each.topic, each.partition) for each in asked])
            answers = [self._told(each) for each in asked]
            leaders = {
                self._known[each.topic][each.partition] for each in answers if each.error is None
            }
        if not leaders:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if leaders & self.silent:
            threading.Event().wait(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return answers

    def _told(self, place: TopicPartition) -> ToldOffset:
        told = ToldOffset(place.topic, place.partition)
        leaders = self._known.get(place.topic)
        if place.topic in self.refused:
            told.error = KafkaError(self.refused[place.topic])
        elif leaders is None:
            told.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        elif place.partition >= len(leaders):
            told.error = KafkaError(KafkaError._UNKNOWN_PARTITION)
        elif leaders[place.partition] == NO_LEADER:
            told.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        else:
            told.offset, told.leader_epoch = 5, 7
        return told
