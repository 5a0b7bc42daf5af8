"""Which faults a run injects, and when: data, of a seed."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

NEXT_S: Final = (2.0, 6.0)  # from the beginning of a fault to that of the next one
SHORT_S: Final = (1.0, 4.0)  # a lease outlives it
LONG_S: Final = (12.0, 20.0)  # no lease and no session does
FAULTS_MAX: Final = 50  # of one schedule: a run of more would take longer than it may


class Tier(Enum):
    """What a container is for."""

    NODE = "node"
    KAFKA = "Kafka broker"
    CLIENT = "client"


class Kind(Enum):
    """What is done to a container, the fault's target."""

    KILL = "SIGKILL; started again after a while"
    PAUSE = "all its processes are stopped, and go on after a while"
    RESTART = "SIGTERM, and started again when it has ended"
    ROLLING_RESTART = "a restart of all of them, one after the other"
    CUT = "nothing passes between it and its peers, either way"
    ONE_WAY = "nothing that its peers send arrives; what it sends does"
    LOSSY = "a share of the packets between it and its peers is lost"
    JITTERY = "each packet between it and its peers is held back, for a time that varies"
    METADATA_SLOW = "nodes and clients get each of its answers late"
    DISK_FULL = "there is no room left on its disk"
    LEADER_KILLED = "SIGKILL of the one that leads the log's partition"
    BELOW_MINIMUM = "SIGKILL of as many that too few are in sync"

    @property
    def is_network(self) -> bool:
        """Whether it is done to the links between the target and its peers."""
        return self in _OF_LINKS

    @property
    def ends_by_itself(self) -> bool:
        """Whether it takes what it takes."""
        return self in (Kind.RESTART, Kind.ROLLING_RESTART)


_OF_LINKS: Final = (Kind.CUT, Kind.ONE_WAY, Kind.LOSSY, Kind.JITTERY, Kind.METADATA_SLOW)
# From where to where the strength of a fault is drawn, and how it is said.
_STRENGTHS: Final = {
    Kind.LOSSY: (0.02, 0.3, "({:.0%} of packets)"),
    Kind.JITTERY: (20.0, 400.0, "(up to {:.0f} ms)"),
    Kind.METADATA_SLOW: (500.0, 3_000.0, "(up to {:.0f} ms)"),
}
# Who may be the target; anybody where nothing is said.
_TARGETS: Final = {
    Kind.ROLLING_RESTART: (Tier.NODE, Tier.KAFKA),
    Kind.METADATA_SLOW: (Tier.KAFKA,),
    Kind.DISK_FULL: (Tier.NODE, Tier.KAFKA),
    Kind.LEADER_KILLED: (Tier.KAFKA,),
    Kind.BELOW_MINIMUM: (Tier.KAFKA,),
}
# Which one of a tier it is, is found out when it is time.
_OF_A_TIER: Final = (
    Kind.ROLLING_RESTART,
    Kind.LEADER_KILLED,
)
# Who speaks to whom.
_PEERS: Final = {
    Tier.NODE: (Tier.KAFKA, Tier.NODE, Tier.CLIENT),
    Tier.KAFKA: (Tier.NODE, Tier.KAFKA, Tier.CLIENT),
    Tier.CLIENT: (Tier.NODE, Tier.KAFKA),
}


@dataclass(frozen=True, slots=True)
class Parties:
    """The containers of a run by name."""

    nodes: tuple[str, ...]
    kafkas: tuple[str, ...]
    clients: tuple[str, ...] = ()

    def of(self, tier: Tier) -> tuple[str, ...]:
        match tier:
            case Tier.NODE:
                return self.nodes
            case Tier.KAFKA:
                return self.kafkas
            case Tier.CLIENT:
                return self.clients


@dataclass(frozen=True, slots=True)
class Fault:
    """From `at_s` after the first one's beginning, `targets` suffer for `for_s`; one that ends by
    itself, as a restart does, takes what it takes. A target suffers one fault at a time: the later
    one waits.
    """

    number: int
    kind: Kind
    targets: tuple[str, ...]
    at_s: float
    for_s: float
    peers: tuple[str, ...] = ()
    strength: float = 0.0

    def __str__(self) -> str:
        words = [self.kind.name.lower(), *self.targets]
        if self.peers:
            words += ["to", *self.peers]
        if self.kind in _STRENGTHS:
            words.append(_STRENGTHS[self.kind][2].format(self.strength))
        if not self.kind.ends_by_itself:
            words.append(f"for {self.for_s:.1f} s")
        return " ".join(words)


def rounds(faults: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Seeds, from that one on, with how many faults their schedules have: so many together.

    >>> rounds(120, 7)
    ((7, 50), (8, 50), (9, 20))
    """
    starts = range(0, faults, FAULTS_MAX)
    return tuple((seed + at, min(FAULTS_MAX, faults - begun)) for at, begun in enumerate(starts))


def schedule(
    seed: int, parties: Parties, count: int, kinds: Collection[Kind] = tuple(Kind)
) -> tuple[Fault, ...]:
    """`count` faults of these kinds, in the order of their beginnings; some overlap.

    >>> schedule(1, Parties(("node-1",), ("kafka-1",)), 2, [Kind.KILL])[1].number
    1
    """
    chance = random.Random(seed)
    found = []
    at_s = 0.0
    for number in range(count):
        at_s += chance.uniform(*NEXT_S)
        for_s = chance.uniform(*chance.choice((SHORT_S, LONG_S)))
        found.append(_fault(number, chance, parties, tuple(kinds), at_s, for_s))
    return tuple(found)


def _fault(
    number: int,
    chance: random.Random,
    parties: Parties,
    kinds: tuple[Kind, ...],
    at_s: float,
    for_s: float,
) -> Fault:
    kind = chance.choice(kinds)
    tier = chance.choice([each for each in _TARGETS.get(kind, tuple(Tier)) if parties.of(each)])
    targets: tuple[str, ...] = (chance.choice(parties.of(tier)),)
    peers: tuple[str, ...] = ()
    strength = chance.uniform(*_STRENGTHS[kind][:2]) if kind in _STRENGTHS else 0.0
    if kind in _OF_A_TIER:
        targets = parties.of(tier)
    elif kind is Kind.BELOW_MINIMUM:
        brokers = parties.kafkas
        targets = tuple(chance.sample(brokers, max(1, len(brokers) - 1)))
    elif kind is Kind.METADATA_SLOW:
        peers = (*parties.nodes, *parties.clients)
    elif kind.is_network:
        # One of them, or all: of Kafka brokers and nodes as of clients.
        groups = [
            tuple(each for each in parties.of(peer) if each != targets[0]) for peer in _PEERS[tier]
        ]
        group = chance.choice([each for each in groups if each])
        peers = group if chance.random() < 0.5 else (chance.choice(group),)
    return Fault(number, kind, targets, at_s, for_s, peers, strength)
