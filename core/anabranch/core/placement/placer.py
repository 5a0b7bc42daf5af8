"""`Placer`: chooses the brokers of Kafka for new partitions.

Leaders: each partition goes to the broker whose leaders carry least, then the next one with that
counted. All partitions of one request are expected to carry alike. For such ones no other way is
more even. Kafka's own way deals them out in turn and looks at no load. Copies: on other racks as
long as there are some, there on the broker that has the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from zlib import crc32

from msgspec.structs import replace

from anabranch.core.placement.room import KafkaBroker, Room, sane

Replicas = tuple[int, ...]  # for one partition; the first one leads
Assignment = tuple[Replicas, ...]  # for one Kafka topic, by partition


def allowed(room: Room, racks: Mapping[int, str], copies: int) -> tuple[KafkaBroker, ...]:
    """The live brokers that may get something new; fewer than `copies` if there are no more.

    `racks`: those of the brokers that live now. A broker that the survey did not see has nothing
    yet.
    """
    known = {each.broker_id: each for each in room.brokers}
    live = [
        replace(known.get(each, KafkaBroker(each)), rack=racks[each])
        for each in sorted(racks)
        if each not in room.drained
    ]
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
