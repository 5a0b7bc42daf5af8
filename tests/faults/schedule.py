"""Which faults a run injects, and when: data, of a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

QUIET_S: Final = (3.0, 8.0)  # between the end of a fault and the next one
SHORT_S: Final = (1.0, 4.0)  # a lease outlives it
LONG_S: Final = (15.0, 25.0)  # no lease and no session does


class Kind(Enum):
    """What is done to a container."""

    KILL = "SIGKILL; started again after a while"
    PAUSE = "all its processes are stopped, and go on after a while"
    CUT = "nothing that it sends arrives, and it gets nothing, for a while"
    RESTART = "SIGTERM, and started again when it has ended"


@dataclass(frozen=True, slots=True)
class Fault:
    """`after_s` since the fault before was over, `target` suffers for `for_s`; a restart takes what
    it takes.
    """

    kind: Kind
    target: str
    after_s: float
    for_s: float

    def __str__(self) -> str:
        how_long = "" if self.kind is Kind.RESTART else f" for {self.for_s:.1f} s"
        return f"{self.kind.name.lower()} {self.target}{how_long}"


def schedule(seed: int, targets: tuple[str, ...], count: int) -> tuple[Fault, ...]:
    """`count` faults one after the other.

    >>> schedule(1, ("node-1",), 2) == schedule(1, ("node-1",), 2)
    True
    """
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        how_long = chance.choice((SHORT_S, LONG_S))
        found.append(
            Fault(
                chance.choice(tuple(Kind)),
                chance.choice(targets),
                chance.uniform(*QUIET_S),
                chance.uniform(*how_long),
            )
        )
    return tuple(found)
