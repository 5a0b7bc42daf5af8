"""What a figure is: something measured, the limit it is compared with, and what was hoped for."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bench.place import Place


class Measured(msgspec.Struct, frozen=True):
    """What one figure came to.

    `judged` is the number that the goal is about: the value itself, or its ratio to the limit.
    `floor` is what others alone take for the same; no goal is about it.
    """

    value: float
    unit: str
    judged: float
    goal: float
    at_least: bool = False  # the goal is a lower bound
    limit: float | None = None
    limit_what: str = ""
    floor: float | None = None
    floor_what: str = ""
    details: dict[str, Any] = {}

    @property
    def met(self) -> bool:
        return self.judged >= self.goal if self.at_least else self.judged <= self.goal

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of the limit."""
        return self.value / self.limit if self.limit else None

    @property
    def missed_by(self) -> float:
        """How many times worse than the goal; below 1: better."""
        return self.goal / self.judged if self.at_least else self.judged / self.goal


class Figure(msgspec.Struct, frozen=True):
    """One row of the table.

    `on_one`: it runs on one broker of Kafka, however many the others have. Several would measure
    nothing more, or it makes a Kafka of its own, or too many partitions.
    """

    name: str
    what: str
    goal: str  # in words
    peer: str  # Apache Pulsar 5.0.0-M1, three brokers, a machine of the kind this is built on
    run: Callable[[Place], Measured]
    on_one: bool = False


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and tail of a sample."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max": ordered[-1],
    }
