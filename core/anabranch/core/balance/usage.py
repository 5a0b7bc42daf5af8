"""`ResourceUsage`: the use of a resource, and its limit; also the spread of loads."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import msgspec


class ResourceUsage(msgspec.Struct, frozen=True, gc=False):
    """Use and limit of one resource, in the same unit; a limit of 0 means that none is known."""

    usage: float = 0.0
    limit: float = 0.0

    @property
    def percent(self) -> float:
        """Returns usage by limit, 100 for all of it and more beyond; 0 if the limit has no meaning.

        >>> ResourceUsage(150.0, 100.0).percent, ResourceUsage(1.0, 0.0).percent
        (150.0, 0.0)
        """
        if not self.limit > 0:  # nor for NaN
            return 0.0
        percent = self.usage / self.limit * 100
        return percent if math.isfinite(percent) else 0.0

    @property
    def is_sound(self) -> bool:
        """Tells whether both are numbers, and none is negative."""
        return is_sound(self.usage) and is_sound(self.limit)


NOTHING_USED: Final = ResourceUsage()
_NUMBER_MAX: Final = 1e15  # sums and squares of such numbers stay numbers


def is_sound(number: float) -> bool:
    """Tells whether the number can be a measurement: no NaN, finite, not negative."""
    return 0 <= number <= _NUMBER_MAX


def percent_of_change(before: float, now: float) -> float:
    """The change of a number, in percent of its former value; infinite if that was 0.

    >>> percent_of_change(200.0, 150.0), percent_of_change(0.0, 0.0), percent_of_change(0.0, 1.0)
    (25.0, 0.0, inf)
    """
    if before == 0:
        return 0.0 if now == 0 else math.inf
    return 100 * abs((before - now) / before)


def spread(values: Collection[float]) -> tuple[float, float]:
    """Mean and variance of all of them (none is a sample), of one value at least.

    Equal values have no variance, though their rounded sum may not be a multiple of them.

    >>> spread([0.003] * 3)
    (0.003, 0.0)
    """
    mean = min(max(math.fsum(values) / len(values), min(values)), max(values))
    return mean, math.fsum((each - mean) ** 2 for each in values) / len(values)
