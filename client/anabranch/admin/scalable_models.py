"""Answers of nodes about scalable topics, and overrides of the auto-scale policy."""

from __future__ import annotations

from typing import Literal, TypedDict

from anabranch.admin.calls import Answer
from anabranch.core.adoption.refusals import AdoptionRefusal
from anabranch.core.adoption.survey import TopicSurvey

SubscriptionType = Literal["STREAM", "QUEUE", "CHECKPOINT"]


class AutoScaleOverride(TypedDict, total=False):
    """The overridden fields, by their names in the interface. docs/autoscale.md explains them.

    The level above decides a field that is left out: the namespace's override, then the settings.
    Type checkers need the names here; a test holds them to `core.autoscale.policy`.
    """

    enabled: bool
    maxSegments: int
    minSegments: int
    maxDagDepth: int
    splitCooldownSeconds: float
    rebucketCooldownSeconds: float
    mergeCooldownSeconds: float
    mergeWindowSeconds: float
    splitMsgRateInThreshold: float
    splitBytesRateInThreshold: float
    splitMsgRateOutThreshold: float
    splitBytesRateOutThreshold: float
    mergeMsgRateInThreshold: float
    mergeBytesRateInThreshold: float
    mergeMsgRateOutThreshold: float
    mergeBytesRateOutThreshold: float
    splitVsRebucketMinMsgRateInThreshold: float


class AdoptionSurvey(Answer, frozen=True):
    """A Kafka topic before its adoption. `refusals`: why it cannot be adopted.

    `partitioner`: the one by which producers of ours would write to it; "" if none is certain.
    """

    survey: TopicSurvey
    refusals: tuple[AdoptionRefusal, ...]
    partitioner: str


class GivenBack(Answer, frozen=True):
    """A Kafka topic that takes messages of its own writers again.

    `left`: messages in segments that came between, which its plain readers do not see.
    """

    kafka_topic: str
    left: int


class HashRange(Answer, frozen=True):
    """A part of the 16-bit ring, both ends included."""

    start: int
    end: int


class Segment(Answer, frozen=True):
    """One segment of a layout."""

    segment_id: int
    hash_range: HashRange
    state: str  # ACTIVE or SEALED
    parent_ids: list[int]
    child_ids: list[int]
    created_at_epoch: int
    sealed_at_epoch: int  # 0 while it is active
    created_at_ms: int
    sealed_at_ms: int  # -1 while it is active
    entry_bucket_splits: list[int]  # first hash of every entry bucket but the first
    end_offsets: list[int]  # the end of each Kafka partition of a sealed segment
    sealed: bool
    active: bool
    root: bool
    leaf: bool
    legacy: bool  # others have made its Kafka topic, which was adopted


class Layout(Answer, frozen=True, omit_defaults=True):
    """The DAG of a topic's segments. PIP-468 calls it the topic's metadata."""

    epoch: int
    next_segment_id: int
    segments: dict[int, Segment]
    properties: dict[str, str]
    auto_scale_policy: AutoScaleOverride | None = None  # the topic's overrides, if it has any


class LoadStats(Answer, frozen=True):
    """Rates per second over the last minute."""

    msg_rate_in: float
    bytes_rate_in: float
    msg_rate_out: float
    bytes_rate_out: float
    modified_ms: int


class OpenTransaction(Answer, frozen=True):
    """A transaction of Kafka that keeps a sealed segment from being read to its end."""

    bucket: int
    start_offset: int


class SegmentStats(Answer, frozen=True, kw_only=True):
    """One segment in a topic's statistics."""

    hash_range: HashRange
    name: str
    state: str
    kafka_topic: str
    entry_buckets: int  # partitions of that topic
    findings: list[str]  # changes that somebody else has made to its Kafka topic
    load: LoadStats | None  # None before it had any
    open_transactions: list[OpenTransaction] = []


class SegmentDetail(SegmentStats, frozen=True, kw_only=True):
    """The statistics of one segment by itself."""

    segment_id: int
    parent_ids: list[int]
    child_ids: list[int]
    subscriptions: dict[str, int | None]  # the backlog of each here; None: not known
    open_transactions_unknown: str = ""  # why; empty when they are known


class ConsumerStats(Answer, frozen=True):
    """One consumer of a subscription."""

    consumer_name: str
    connected: bool


class SubscriptionStats(Answer, frozen=True):
    """One subscription in a topic's statistics."""

    type: SubscriptionType
    consumer_count: int
    consumers: list[ConsumerStats]
    msg_backlog: int | None  # None: not known, and `backlog_unknown` says why
    segments: dict[int, int | None]
    backlog_unknown: str
    drained_segments: list[int]
    group_id: str
    positions: dict[int, list[int]] = {}  # by segment, each bucket's next offset; {}: not known
    dead_letter_topic: str = ""  # the place for messages that nobody could process
    max_deliveries: int = 0  # of a queue: a message goes there after so many


class DeadLetterPolicy(Answer, frozen=True):
    """The dead-letter topic of a subscription, and of a queue the number of deliveries before a
    message goes there; 0 of a stream, whose consumers count attempts.
    """

    dead_letter_topic: str
    max_deliveries: int


class PolicyField(Answer, frozen=True):
    """One field of the auto-scale policy in force."""

    value: bool | int | float
    level: str  # broker, namespace or topic


class Decision(Answer, frozen=True):
    """The result of one look at the load."""

    at_ms: int
    trigger: str | None  # tick, consumers, operation or policy; None: the look of this request
    action: str
    reason: str | None
    why: str


class AutoScaleStats(Answer, frozen=True):
    """The policy in force, and the decisions by it."""

    policy: dict[str, PolicyField]
    fault: str  # why the policy cannot be used; empty when it can
    now: Decision
    decisions: list[Decision]  # newest first


class TopicStats(Answer, frozen=True):
    """The state of a topic, as its controller knows it."""

    epoch: int
    total_segments: int
    active_segments: int
    sealed_segments: int
    segments: dict[int, SegmentStats]
    subscriptions: dict[str, SubscriptionStats]
    operation: str  # NONE, SPLIT, MERGE, REBUCKET, RESTORE, PREPARE or GIVE_BACK
    last_failure: str
    auto_scale: AutoScaleStats
    open_transactions_unknown: str = ""  # why; empty when they are known
    own_settings: dict[str, str] = {}  # of an adopted Kafka topic, before its seal
