"""Kafka's brokers: the segments on each, and draining."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, nothing, path


class KafkaBrokerStats(Answer, frozen=True):
    """One broker of Kafka and its share of the cluster's segments. Counts are of partitions."""

    broker_id: int
    rack: str  # empty for none
    live: bool
    drained: bool  # nothing new is placed there
    bytes_per_second: float  # in and out, of the active segments that it leads
    active_leaders: int  # partitions of segments that take messages
    active_replicas: int
    sealed_leaders: int  # partitions of segments that are only read
    sealed_replicas: int


_BROKERS: Final = msgspec.json.Decoder(list[KafkaBrokerStats]).decode


class KafkaPlane(Resource[TransportT]):
    """Operations on Kafka's brokers."""

    @RestMethod
    def list_kafka_brokers(self) -> Call[list[KafkaBrokerStats]]:
        """Returns, by id, all brokers that live, have a copy of something, or are drained."""
        return Call("GET", _kafka("brokers"), _BROKERS)

    @RestMethod
    def drain_kafka_broker(self, broker_id: int) -> Call[None]:
        """Keeps new segments off this broker of Kafka.
        Active ones leave it, one after the other.
        """
        return Call("PUT", _kafka("brokers", broker_id, "drain"), nothing)

    @RestMethod
    def undrain_kafka_broker(self, broker_id: int) -> Call[None]:
        """Lets segments be placed on this broker of Kafka again."""
        return Call("DELETE", _kafka("brokers", broker_id, "drain"), nothing)


def _kafka(*more: str | int) -> str:
    return path("admin", "v2", "kafka", *more)
