"""The choice of Kafka brokers for the partitions of new segments.

Kafka balances by copying data from broker to broker. Anabranch copies nothing: each split, merge,
rebucket and relocation makes new Kafka topics anyway, and they go to the brokers with most room.

Leaders: each partition goes to the broker whose leaders carry least, then the next one with that
counted. All partitions of one request are expected to carry alike. For such ones no other way is
more even. Kafka's own way deals them out in turn and looks at no load. Copies: on other racks as
long as there are some, there on the broker that has the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final
from zlib import crc32

import msgspec
from msgspec.structs import replace

from anabranch.core.entities.segment import SegmentInfo

Place = tuple[int, int]  # a segment: its topic's incarnation, which no other topic has, and its id
BytesOf = Callable[[Place], float]  # a second, in and out
Replicas = tuple[int, ...]  # for one partition; the first one leads
Assignment = tuple[Replicas, ...]  # for one Kafka topic, by partition

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

    `number`: the survey's. `brokers`: empty before the first one. `off`: those that get nothing of
    this, if that leaves enough. `expected`: the load of each new partition, 0 if unknown.
    """

    number: int = 0
    brokers: tuple[KafkaBroker, ...] = ()
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
                after[known.broker_id] = replace(known, load=load)
    return tuple(after.values())


def expected_load(
    children: Iterable[SegmentInfo], parents: Iterable[Place], bytes_of: BytesOf
) -> float:
    """The load of each partition of the children, if they share their parents' load alike."""
    partitions = sum(part.buckets for part in children)
    return sane(sum(sane(bytes_of(place)) for place in parents) / max(1, partitions))


def allowed(room: Room, racks: Mapping[int, str], copies: int) -> tuple[KafkaBroker, ...]:
    """The live brokers that may get something new; fewer than `copies` if there are no more.

    `racks`: those of the brokers that live now. A broker that the survey did not see has nothing
    yet.
    """
    known = {each.broker_id: each for each in room.brokers}
    live = [replace(known.get(each, KafkaBroker(each)), rack=racks[each]) for each in sorted(racks)]
    elsewhere = tuple(each for each in live if each.broker_id not in room.off)
    return elsewhere if len(elsewhere) >= copies else tuple(live)


def assign(
    brokers: Sequence[KafkaBroker], topics: Mapping[str, int], copies: int, expected: float
) -> dict[str, Assignment]:
    """The replicas of every partition of new Kafka topics. `topics` has the number of partitions of
    each.

    There are as many brokers as copies, at least. A cold or unknown topic may become warm, so no
    partition counts for less than the mean of the existing ones. Without any load the number of
    leaders counts. Among equals the order is that of the ids, from a start that the topic's name
    gives. Thus topics without load do not all begin on the same broker.
    """
    total = sum(sane(each.load) for each in brokers)
    leaders = sum(each.leaders for each in brokers)
    by_load = total > 0.0
    weight = max(sane(expected), total / max(1, leaders)) if by_load else 1.0
    racks = {each.broker_id: each.rack for each in brokers}
    replicas = Counter({each.broker_id: each.replicas for each in brokers})
    burdens = {
        each.broker_id: sane(each.load) if by_load else float(each.leaders) for each in brokers
    }
    found: dict[str, Assignment] = {}
    for name, partitions in topics.items():
        turn = crc32(name.encode()) % len(brokers)
        order = {each: place for place, each in enumerate([*racks][turn:] + [*racks][:turn])}
        heap = [(burdens[each], order[each], each) for each in racks]
        heapify(heap)
        chosen: list[Replicas] = []
        for _ in range(partitions):
            burden, place, leader = heap[0]
            heapreplace(heap, (burden + weight, place, leader))
            burdens[leader] = burden + weight
            replicas[leader] += 1
            chosen.append(_with_followers(leader, copies, racks, replicas, order))
        found[name] = tuple(chosen)
    return found


def _with_followers(
    leader: int,
    copies: int,
    racks: Mapping[int, str],
    replicas: Counter[int],
    order: Mapping[int, int],
) -> Replicas:
    """The leader and its followers, which are counted in `replicas`."""
    chosen = [leader]
    used = Counter({racks[leader]: 1})
    while len(chosen) < copies:
        follower = min(
            (each for each in racks if each not in chosen),
            key=lambda each: (used[racks[each]], replicas[each], order[each]),
        )
        chosen.append(follower)
        used[racks[follower]] += 1
        replicas[follower] += 1
    return tuple(chosen)


class Placer:
    """Remembers its choices until a later survey shows them. To be used by one thread."""

    def __init__(self) -> None:
        self._number = -1
        self._chosen: list[tuple[Replicas, float]] = []

    def place(
        self, room: Room, brokers: Sequence[KafkaBroker], topics: Mapping[str, int], copies: int
    ) -> dict[str, Assignment]:
        """Assigns like `assign`, with the choices since the survey. `brokers`: those that are
        allowed.
        """
        if room.number != self._number:
            self._number, self._chosen = room.number, []
        after = {each.broker_id: each for each in brokers}
        for replicas, load in self._chosen:
            for broker in replicas:
                if broker in after:
                    after[broker] = _with_one_more(after[broker], broker == replicas[0], load)
        found = assign(tuple(after.values()), topics, copies, room.expected)
        expected = sane(room.expected)
        self._chosen += [(each, expected) for parts in found.values() for each in parts]
        return found


def _with_one_more(broker: KafkaBroker, leads: bool, load: float) -> KafkaBroker:
    more = replace(broker, replicas=broker.replicas + 1)
    return replace(more, leaders=more.leaders + 1, load=more.load + load) if leads else more
