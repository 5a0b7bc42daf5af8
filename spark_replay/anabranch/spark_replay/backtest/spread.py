"""The spread of a topic's load over the ring of hashes, for traces that do not tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16, hash32, segment_hash

_KEYS: Final = 1_000
_KEYS_MAX: Final = 1_000_000
FORMS: Final = "uniform, hot:SHARE (0 to 1), zipf:EXPONENT or zipf:EXPONENT:KEYS"

Floats = NDArray[np.float64]


class Spread(msgspec.Struct, frozen=True):
    """`hot` is the share of the load that one key has; the rest lies evenly.

    `keys` is the number of keys that share the load by Zipf's law with this exponent. 0 spreads it
    evenly over all hashes.
    """

    hot: float = 0.0
    exponent: float = 0.0
    keys: int = 0


def parse_spread(text: str) -> Spread:
    """Parses one of `FORMS`. Raises InvalidInputError.

    >>> parse_spread("zipf:1.1"), parse_spread("hot:0.4").hot
    (Spread(hot=0.0, exponent=1.1, keys=1000), 0.4)
    """
    kind, *numbers = text.split(":")
    try:
        match kind, numbers:
            case "uniform", []:
                return Spread()
            case "hot", [share] if 0 <= float(share) <= 1:
                return Spread(hot=float(share))
            case "zipf", [exponent] if 0 <= float(exponent) <= 10:
                return Spread(exponent=float(exponent), keys=_KEYS)
            case "zipf", [exponent, keys] if (
                0 <= float(exponent) <= 10 and 1 <= int(keys) <= _KEYS_MAX
            ):
                return Spread(exponent=float(exponent), keys=int(keys))
    except ValueError:
        pass
    raise InvalidInputError(f"{text!r} is no spread of load; there are {FORMS}")


def below(spread: Spread, topic: str, seed: int) -> Floats:
    """Returns, for each hash and the ring's end, the share of the load that lies below it.

    Keys lie at the cluster's own hashes. Their names come of the topic and the seed.
    """
    if not spread.keys:
        found = np.arange(RING16 + 1) / RING16 * (1 - spread.hot)
        if spread.hot:
            found[_place(topic, seed, 0) + 1 :] += spread.hot
        return found
    weights = np.arange(1, spread.keys + 1, dtype=np.float64) ** -spread.exponent
    places = np.fromiter(
        (_place(topic, seed, number) for number in range(spread.keys)), np.int64, spread.keys
    )
    at = np.bincount(places, weights / weights.sum(), RING16)
    return np.concatenate(([0.0], np.cumsum(at)))


def shares(lies_below: Floats, edges: Sequence[int], start: int, end: int) -> Floats:
    """Returns, for each piece of the ring between two edges, the share of its load on hashes from
    `start` to `end`, both inclusive.

    No piece may be without any load.
    """
    walls = np.asarray(edges)
    low = np.clip(start, walls[:-1], walls[1:])
    high = np.clip(end + 1, walls[:-1], walls[1:])
    whole = lies_below[walls[1:]] - lies_below[walls[:-1]]
    found: Floats = (lies_below[high] - lies_below[low]) / whole
    return found


def _place(topic: str, seed: int, number: int) -> int:
    return segment_hash(hash32(f"{topic}/{seed}/{number}"))
