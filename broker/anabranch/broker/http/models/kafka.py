"""Bodies about Kafka's brokers (Anabranch's own)."""

from __future__ import annotations

from pydantic import BaseModel, Field


class KafkaBrokerStats(BaseModel):
    """One broker of Kafka, and its share of our segments; counts are of partitions."""

    brokerId: int
    rack: str = Field(description="Its `broker.rack`; empty for none.")
    live: bool
    drained: bool = Field(description="True if nothing new is placed there.")
    bytesPerSecond: float = Field(description="In and out, of the active segments that it leads.")
    activeLeaders: int = Field(
        description="Partitions of segments that take messages: those that it leads."
    )
    activeReplicas: int = Field(description="The same: those that it has a copy of.")
    sealedLeaders: int = Field(
        description="Partitions that it leads of sealed segments, which are only read."
    )
    sealedReplicas: int
