"""Open transactions that keep sealed segments from being read.

librdkafka tells if one is open: Kafka gives out nothing from the first one's beginning on, and
calls that the end. Kafka's own `kafka-transactions.sh` tells whose it is, and can end it.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import (
    LATEST,
    Answers,
    PartitionOffset,
    PartitionOffsets,
    Place,
)

_ASKING = "to look for open transactions"


class StableEnds:
    """Blocking questions, each with a deadline, for use by one thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        # It reads committed messages, so the end is the beginning of the first open transaction.
        self._stable = PartitionOffsets(connection, connection.consumer())

    def close(self) -> None:
        """Ends the client that asks."""
        self._stable.close()

    def held(self, ends: Mapping[Place, int], deadline_s: float) -> dict[Place, int]:
        """Returns the buckets that a transaction holds back below these ends, and from where on.

        Raises KafkaRefusedError, or KafkaUnreachableError.
        """
        starts = _offsets(self._connection, self._stable.ask(ends, LATEST, deadline_s))
        return {place: start for place, start in starts.items() if start < ends[place]}


def _offsets(connection: KafkaConnection, told: Answers) -> dict[Place, int]:
    """The offsets of partitions that are there. Raises as `StableEnds.held`."""
    found = {}
    for place, each in told.items():
        if isinstance(each, PartitionOffset):
            found[place] = each.offset
        elif each.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise connection.explained(KafkaException(each), _ASKING)
    return found
