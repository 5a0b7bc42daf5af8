"""Bodies about scalable topics, by the field names of PIP-468 and of Pulsar's admin REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from anabranch.broker.http.models.autoscale import (
    AutoScaleStats,
    LoadStats,
)
from anabranch.core.autoscale.policy import override_of
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic


class HashRange(BaseModel):
    """Part of the 16-bit ring; both ends belong to it."""

    start: int
    end: int


class SegmentBody(BaseModel):
    """One segment of a layout."""

    segmentId: int
    hashRange: HashRange
    state: str = Field(description="ACTIVE or SEALED.")
    parentIds: list[int]
    childIds: list[int]
    createdAtEpoch: int
    sealedAtEpoch: int = Field(description="0 while it is active.")
    createdAtMs: int
    sealedAtMs: int = Field(description="-1 while it is active.")
    entryBucketSplits: list[int] = Field(
        description="First hash of every entry bucket but the first."
    )
    endOffsets: list[int] = Field(
        description="The first offset that each Kafka partition of a sealed segment never has."
    )
    sealed: bool
    active: bool
    root: bool
    leaf: bool
    legacy: bool = Field(description="Always false: there are no legacy segments.")


class LayoutBody(BaseModel):
    """The DAG of a topic's segments."""

    epoch: int
    nextSegmentId: int
    segments: dict[str, SegmentBody]
    properties: dict[str, str]
    autoScalePolicy: dict[str, Any] | None = Field(
        None, description="The topic's overrides; absent if it has none."
    )


class OpenTransaction(BaseModel):
    """A transaction of Kafka that keeps a sealed segment from being read to its end."""

    bucket: int
    startOffset: int = Field(
        description="Offset from which on the bucket's messages are not given out."
    )


class SegmentStats(BaseModel):
    """One segment in a topic's statistics."""

    hashRange: HashRange
    name: str
    state: str
    kafkaTopic: str = Field(description="The Kafka topic of its messages.")
    entryBuckets: int = Field(description="Partitions of that topic.")
    kafkaLeaders: list[int | None] = Field(
        description="Ids of Kafka's brokers that lead them, as of some seconds ago; null: none; "
        "empty: not known, or Kafka has one broker."
    )
    kafkaReplicas: list[int] = Field(description="Those that have a copy of any, likewise.")
    findings: list[str] = Field(
        description="Others' changes to its Kafka topic, as of some seconds ago."
    )
    load: LoadStats | None = Field(description="Its traffic; null before it had any.")
    openTransactions: list[OpenTransaction] = Field(
        description="Those in a sealed segment that some subscription has yet to read."
    )


class ConsumerStats(BaseModel):
    """One consumer of a subscription."""

    consumerName: str
    connected: bool = Field(description="False while its share waits for it to come back.")


class SubscriptionStats(BaseModel):
    """One subscription in a topic's statistics."""

    type: str
    consumerCount: int
    consumers: list[ConsumerStats]
    msgBacklog: int | None = Field(
        description="Records that are not acknowledged, as of some seconds ago; null: not known."
    )
    segments: dict[str, int | None] = Field(description="The same by segment.")
    backlogUnknown: str = Field(description="Why the backlog is not known; empty when it is.")
    drainedSegments: list[int] = Field(
        description="Sealed segments that it has read to their ends."
    )
    groupId: str = Field(description="Its consumer group, or share group, in Kafka.")
    deadLetterTopic: str = Field(
        description="A queue's scalable topic for messages that it cannot process; empty for none."
    )
    maxDeliveries: int = Field(
        description="Deliveries before a message goes there; 0 if there is no such topic."
    )


class SegmentDetail(SegmentStats):
    """One segment's statistics by themselves."""

    segmentId: int
    parentIds: list[int]
    childIds: list[int]
    subscriptions: dict[str, int | None] = Field(
        description="The backlog of each subscription here; null: not known."
    )
    openTransactionsUnknown: str = Field(
        description="Why open transactions are not known; empty when they are."
    )


class TopicStats(BaseModel):
    """The segments, subscriptions and operations of a topic."""

    epoch: int
    totalSegments: int
    activeSegments: int
    sealedSegments: int
    segments: dict[str, SegmentStats]
    subscriptions: dict[str, SubscriptionStats]
    operation: str = Field(
        description="The operation under way: NONE, SPLIT, MERGE, REBUCKET or RELOCATE."
    )
    lastFailure: str = Field(
        description="Why the last step in Kafka failed; empty when it did not."
    )
    openTransactionsUnknown: str = Field(
        description="Why open transactions are not known; empty when they are."
    )
    autoScale: AutoScaleStats


def layout_body(topic: ScalableTopic) -> dict[str, Any]:
    """`LayoutBody` as plain JSON values: a layout may be large, and is asked for often."""
    body = topic.layout.to_metadata()
    if topic.auto_scale:
        body["autoScalePolicy"] = dict(override_of(topic.auto_scale))
    segments: dict[str, Any] = body["segments"]
    for part in topic.segments:
        segments[str(part.segment_id)].update(_derived(part))
    return body


def segment_bodies(parts: Sequence[SegmentInfo]) -> list[dict[str, Any]]:
    """`SegmentBody` of each, as plain JSON values."""
    found = SegmentLayout(0, 0, parts).to_metadata()["segments"]
    return [found[str(part.segment_id)] | _derived(part) for part in parts]


def _derived(part: SegmentInfo) -> dict[str, Any]:
    return {
        "sealedAtMs": -1 if part.is_active else part.sealed_at_ms,
        "sealed": not part.is_active,
        "active": part.is_active,
        "root": not part.parent_ids,
        "leaf": not part.child_ids,
        "legacy": False,
    }
