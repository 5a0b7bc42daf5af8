"""`BrokerSurveyor`: Kafka's brokers, and the places of our segments on them.

Blocking calls, to be made by one thread.
"""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import TopicMetadata

from anabranch.channel.kafka.brokers import Racks, living
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.core.topics.kafka_placement import Copies, KafkaSurvey, Place

_RACKS_S: Final = 1.0  # a rack of an absent broker is known, or does not matter
_NAME_END: Final = re.compile(r"\.[0-9a-f]{4}-[0-9a-f]{4}-(\d{1,18})\.(\d{1,18})", re.ASCII)


def place_of(kafka_topic: str) -> Place | None:
    """The segment of a Kafka topic, by the end of its name; None for any other topic.

    >>> place_of("anabranch.segment.public.default.orders.0000-7fff-1.42")
    (42, 1)
    >>> place_of("anabranch.wal")
    """
    head = kafka_topic.rfind(".", 0, max(0, kafka_topic.rfind(".")))
    found = _NAME_END.fullmatch(kafka_topic, head) if head >= 0 else None
    return (int(found[2]), int(found[1])) if found is not None else None


class BrokerSurveyor:
    """Asks Kafka; asks for segments only if there are several brokers, because it costs more."""

    def __init__(self, connection: KafkaConnection, prefix: str) -> None:
        self._admin = connection.admin()
        self._racks = Racks(self._admin)
        self._log = Topics(prefix).wal
        self._prefix = f"{prefix}segment."

    def look(self, timeout_s: float, *, whole: bool = False) -> KafkaSurvey | None:
        """The present survey; None if Kafka does not say in time. `whole`: segments in any case."""
        try:
            brokers = living(self._admin, self._log, timeout_s)
            several = len(brokers) > 1
            racks = self._racks.ask(brokers, min(timeout_s, _RACKS_S)) if several else {}
            racks = {each: racks.get(each, "") for each in brokers}
            if not racks or (len(racks) == 1 and not whole):
                return KafkaSurvey(racks) if racks else None
            topics = self._admin.list_topics(timeout=timeout_s).topics
        except KafkaException:
            return None
        found: dict[Place, tuple[Copies, ...]] = {}
        for name, topic in topics.items():
            place = place_of(name) if name.startswith(self._prefix) else None
            if place is not None:
                found[place] = _copies(topic)
        return KafkaSurvey(racks, found)


def _copies(topic: TopicMetadata) -> tuple[Copies, ...]:
    return tuple(
        Copies(part.leader if part.leader >= 0 else None, tuple(part.replicas))
        for _, part in sorted(topic.partitions.items())
    )
