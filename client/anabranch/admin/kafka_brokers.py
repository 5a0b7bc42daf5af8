"""Kafka's brokers: what lies there, and draining them."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, nothing, path


class KafkaBrokerStats(Answer, frozen=True):
    """One broker of Kafka, and what it has of the cluster's segments; counts are of partitions."""

    broker_id: int
    rack: str  # empty for none
    live: bool
    drained: bool  # nothing new is placed there
    bytes_per_second: float  # in and out, of the active segments that it leads
    active_leaders: int  # of segments that take messages
    active_replicas: int
    sealed_leaders: int  # of those that are only read
    sealed_replicas: int


_BROKERS: Final = msgspec.json.Decoder(list[KafkaBrokerStats]).decode


class KafkaPlane(Resource[TransportT]):
    """Operations on Kafka's brokers."""

    @RestMethod
    def list_kafka_brokers(self) -> Call[list[KafkaBrokerStats]]:
        """All that live, have a copy of something, or are drained, by id."""
        return Call("GET", _kafka("brokers"), _BROKERS)

    @RestMethod
    def drain_kafka_broker(self, broker_id: int) -> Call[None]:
        """Places nothing there any more; active segments leave it, one after the other."""
        return Call("PUT", _kafka("brokers", broker_id, "drain"), nothing)

    @RestMethod
    def undrain_kafka_broker(self, broker_id: int) -> Call[None]:
        """Lets segments be placed there again."""
        return Call("DELETE", _kafka("brokers", broker_id, "drain"), nothing)


def _kafka(*more: str | int) -> str:
    return path("admin", "v2", "kafka", *more)
