"""Brokers of Kafka that are drained: they get nothing new, and what takes messages leaves them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.log.state import StateReader
from anabranch.core.placement.room import Copies, KafkaSurvey

ToLeave = dict[int, dict[int, tuple[int, ...]]]  # the brokers, by incarnation and segment


def drained_brokers(state: StateReader) -> frozenset[int]:
    """Ids of the brokers that the log calls drained."""
    return frozenset(int(name) for name, _ in state.placements(PolicyKind.KAFKA_DRAIN))


def copies_on(partitions: Iterable[Copies]) -> frozenset[int]:
    """The brokers that have a copy of one of these partitions."""
    return frozenset(broker for each in partitions for broker in each.replicas)


def to_leave(survey: KafkaSurvey, drained: Collection[int]) -> ToLeave:
    """Segments, sealed ones too, that a drained broker has a copy of, and which ones have one.

    A copy that only follows counts: it takes every append that its leader takes.
    """
    found: ToLeave = {}
    if not drained:
        return found
    for (incarnation, segment_id), partitions in survey.segments.items():
        brokers = copies_on(partitions).intersection(drained)
        if brokers:
            found.setdefault(incarnation, {})[segment_id] = tuple(sorted(brokers))
    return found
