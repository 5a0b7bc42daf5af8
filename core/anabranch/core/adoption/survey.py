"""A Kafka topic as it was found before its adoption. It has counts and names, and no key."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from anabranch.core.adoption.verdict import PartitionerJudgement

NO_MEMBERS = ("Empty", "Dead")  # Kafka's words


class TopicSetting(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A setting of a topic. `is_own`: it is set on the topic, and not inherited."""

    value: str
    is_own: bool


class SurveyedGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group that has committed offsets in the topic. `kind` and `state` are Kafka's words.

    `lag`: records behind its offsets, in the partitions that have one.
    """

    name: str
    kind: str
    state: str
    offsets: Mapping[int, int]
    lag: int

    @property
    def has_members(self) -> bool:
        """Returns whether somebody reads by it now."""
        return self.state not in NO_MEMBERS


class Growth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The records that were written between two looks. `newest_ms`: the time stamp of the newest
    one, by its writer's clock; None if there is none.
    """

    records: int
    seconds: float
    newest_ms: int | None


class KnownProducers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The idempotent producers that Kafka remembers, for a day if it is not set otherwise.

    `transactional`: those that have used transactions. `newest_ms`: the time of their last batch.
    """

    count: int
    transactional: int
    newest_ms: int | None


class TopicSurvey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found. `starts` and `ends`: offsets by partition.

    `open_transactions`: the first offsets of those with records, by partition. `codecs`: those of
    the batches that were read. `registry_keys` and `registry_values`: records of `records_read`
    that begin as a schema registry's do. `missing_rights`: Kafka's words for operations on the
    topic that a node needs and this client may not do. `untold`: what is not known, and why.
    """

    topic: str
    topic_id: str
    is_internal: bool
    at_ms: int
    partitions: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    judgement: PartitionerJudgement
    records_read: int
    codecs: tuple[str, ...]
    registry_keys: int
    registry_values: int
    growth: Growth | None
    producers: KnownProducers | None
    open_transactions: Mapping[int, int]
    groups: tuple[SurveyedGroup, ...]
    settings: Mapping[str, TopicSetting]
    missing_rights: tuple[str, ...]
    untold: Mapping[str, str]
