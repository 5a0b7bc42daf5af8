"""How far loads lie apart: mean and standard deviation, of all of them (none is a sample)."""

from __future__ import annotations

import math
from collections.abc import Collection


def spread(values: Collection[float]) -> tuple[float, float]:
    """Mean and variance of one value at least.

    Equal values have no variance, though their rounded sum may not be a multiple of them.

    >>> spread([0.003] * 3)
    (0.003, 0.0)
    """
    mean = min(max(math.fsum(values) / len(values), min(values)), max(values))
    return mean, math.fsum((each - mean) ** 2 for each in values) / len(values)


def deviation_of(values: Collection[float]) -> float:
    """The standard deviation of some values; 0 of none.

    >>> deviation_of([0.2, 0.4])
    0.1
    """
    return math.sqrt(spread(values)[1]) if values else 0.0
