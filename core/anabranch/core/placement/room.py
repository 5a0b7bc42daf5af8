"""`Room`: the known facts of Kafka's brokers at the creation of segments' Kafka topics.

Kafka balances by copying data from broker to broker. Anabranch copies nothing: each split, merge,
rebucket and relocation makes new Kafka topics anyway, and they go to the brokers with most room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from anabranch.core.entities.segment import SegmentInfo

Place = tuple[int, int]  # a segment: its topic's incarnation, which no other topic has, and its id
BytesOf = Callable[[Place], float]  # a second, in and out

_LOAD_MAX: Final = 1e18  # bytes a second; so no sum of many is infinite


class Copies(msgspec.Struct, frozen=True, gc=False):
    """The brokers of one partition; `leader` is None while it has none."""

    leader: int | None
    replicas: tuple[int, ...]


class KafkaSurvey(msgspec.Struct, frozen=True):
    """Kafka's answer about its brokers and our segments on them.

    `racks`: those of live brokers; "" for one that names none. `segments`: sealed ones, too.
    """

    racks: Mapping[int, str]
    segments: Mapping[Place, tuple[Copies, ...]] = {}

    def copies(self, incarnation: int, segment_id: int) -> tuple[Copies, ...]:
        """The copies of a segment, by partition; empty if Kafka did not say them."""
        return self.segments.get((incarnation, segment_id), ())


class KafkaBroker(msgspec.Struct, frozen=True, gc=False):
    """One live broker of Kafka.

    `load`: bytes a second, in and out, of the segments' partitions that it leads. `leaders`: the
    number of these partitions. `replicas`: the number of partitions that it has a copy of.
    """

    broker_id: int
    rack: str = ""
    load: float = 0.0
    leaders: int = 0
    replicas: int = 0


class Room(msgspec.Struct, frozen=True):
    """Kafka's brokers as the last survey has them, and the demands of new partitions.

    `number`: the survey's. `brokers`: empty before the first one. `drained`: brokers that get
    nothing new. `off`: those that get nothing of this, if that leaves enough. `expected`: the load
    of each new partition, 0 if unknown.
    """

    number: int = 0
    brokers: tuple[KafkaBroker, ...] = ()
    drained: frozenset[int] = frozenset()
    off: frozenset[int] = frozenset()
    expected: float = 0.0


def sane(load: float) -> float:
    """The load, or 0 for an invalid one.

    >>> sane(2.5), sane(float("nan")), sane(-1.0), sane(float("inf"))
    (2.5, 0.0, 0.0, 0.0)
    """
    return min(load, _LOAD_MAX) if 0.0 < load < float("inf") else 0.0


def brokers_of(survey: KafkaSurvey, bytes_of: BytesOf) -> tuple[KafkaBroker, ...]:
    """Adds up the load of each live broker, by id. A partition without a leader is nobody's load.

    Reads count on the leader, as writes do, because consumers read from leaders.
    """
    loads: dict[int, float] = dict.fromkeys(survey.racks, 0.0)
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for place, partitions in survey.segments.items():
        share = sane(bytes_of(place)) / max(1, len(partitions))
        for each in partitions:
            replicas.update(each.replicas)
            if each.leader in loads:
                loads[each.leader] += share
                leaders[each.leader] += 1
    return tuple(
        KafkaBroker(each, survey.racks[each], loads[each], leaders[each], replicas[each])
        for each in sorted(survey.racks)
    )


def relieved(
    brokers: Iterable[KafkaBroker], survey: KafkaSurvey, parents: Iterable[Place], bytes_of: BytesOf
) -> tuple[KafkaBroker, ...]:
    """The brokers after the sealing of these segments: the segments' load goes to their
    children.
    """
    after = {each.broker_id: each for each in brokers}
    for place in parents:
        partitions = survey.segments.get(place, ())
        share = sane(bytes_of(place)) / max(1, len(partitions))
        for leader in (each.leader for each in partitions):
            known = after.get(leader) if leader is not None else None
            if known is not None:
                load = max(0.0, known.load - share)
                after[known.broker_id] = msgspec.structs.replace(known, load=load)
    return tuple(after.values())


def expected_load(
    children: Iterable[SegmentInfo], parents: Iterable[Place], bytes_of: BytesOf
) -> float:
    """The load of each partition of the children, if they share their parents' load alike."""
    partitions = sum(part.buckets for part in children)
    return sane(sum(sane(bytes_of(place)) for place in parents) / max(1, partitions))
