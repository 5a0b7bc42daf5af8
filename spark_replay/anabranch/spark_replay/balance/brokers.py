"""What a broker uses, as a function of what its bundles take: a straight line for each resource.

The line of a broker that has measured itself is the one closest to its measurements, against the
bytes a second of the bundles that the recording has on it at the same time. What it does that no
recorded bundle explains is in where the line begins, and stays with the broker whatever is moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from anabranch.core.balance.recording import BrokerLine, BundleLine, LoadRecording
from anabranch.core.balance.reports import Resources
from anabranch.core.balance.usage import ResourceUsage

_FULL = 100.0


class UseLine(msgspec.Struct, frozen=True):
    """One resource: `idle` without any traffic, `per_byte` more for each byte a second."""

    idle: float
    per_byte: float
    limit: float

    def at(self, throughput: float) -> ResourceUsage:
        """The use with so many bytes a second, in and out."""
        return ResourceUsage(self.idle + self.per_byte * throughput, self.limit)


class BrokerModel(msgspec.Struct, frozen=True):
    """One broker. `measured`: how often it has measured itself; 0: its capacity was given.

    `error`: how far its measurements lie from the lines, in the mean, as a share of the limit; of
    the resource that is worst explained.
    """

    broker: str
    lines: tuple[UseLine, UseLine, UseLine, UseLine, UseLine]
    measured: int
    error: float

    def resources(self, throughput: float) -> Resources:
        """What it uses with so many bytes a second, in and out."""
        return Resources(*(line.at(throughput) for line in self.lines))

    @property
    def capacity(self) -> float:
        """Bytes a second with which its first resource is full; endless if none ever is."""
        found = [
            (line.limit - line.idle) / line.per_byte
            for line in self.lines
            if line.per_byte > 0 and line.limit > 0
        ]
        return max(0.0, min(found, default=math.inf))


def models_of(recording: LoadRecording) -> dict[str, BrokerModel]:
    """Each broker's model, by name."""
    points: dict[str, list[tuple[float, Sequence[ResourceUsage]]]] = {}
    given: dict[str, BrokerLine] = {}
    owners: dict[str, tuple[str, float]] = {}
    sums: dict[str, float] = {}
    for line in recording.lines:
        if isinstance(line, BundleLine):
            before, amount = owners.get(line.bundle, (line.broker, 0.0))
            sums[before] = sums.get(before, 0.0) - amount
            owners[line.bundle] = line.broker, line.load.msg_throughput
            sums[line.broker] = sums.get(line.broker, 0.0) + line.load.msg_throughput
        elif line.resources is not None:
            throughput = max(0.0, sums.get(line.broker, 0.0))
            points.setdefault(line.broker, []).append((throughput, line.resources.all))
        else:
            given[line.broker] = line  # the newest one counts
    return {
        broker: _given(given[broker]) if broker in given else _fitted(broker, points[broker])
        for broker in recording.brokers
    }


def _given(line: BrokerLine) -> BrokerModel:
    idle, capacity = line.idle or 0.0, line.capacity or math.inf
    cpu = UseLine(idle * _FULL, (1 - idle) * _FULL / capacity, _FULL)
    nothing = UseLine(0.0, 0.0, 0.0)
    return BrokerModel(line.broker, (cpu, nothing, nothing, nothing, nothing), 0, 0.0)


def _fitted(broker: str, points: Sequence[tuple[float, Sequence[ResourceUsage]]]) -> BrokerModel:
    throughputs = [throughput for throughput, _ in points]
    cpu, memory, direct, into, out = (
        _closest(throughputs, [uses[number] for _, uses in points]) for number in range(5)
    )
    lines = (cpu, memory, direct, into, out)
    errors = [
        math.fsum(
            abs(line.at(throughput).usage - uses[number].usage) for throughput, uses in points
        )
        / len(points)
        / line.limit
        for number, line in enumerate(lines)
        if line.limit > 0
    ]
    return BrokerModel(broker, lines, len(points), max(errors, default=0.0))


def _closest(throughputs: Sequence[float], uses: Sequence[ResourceUsage]) -> UseLine:
    """The line with the least squares that neither falls nor begins below 0.

    Where the throughput is always the same, nobody knows what is idle: then all is in proportion.
    """
    limit = uses[-1].limit
    count = len(uses)
    mean_x = math.fsum(throughputs) / count
    mean_y = math.fsum(each.usage for each in uses) / count
    spread = math.fsum((x - mean_x) ** 2 for x in throughputs)
    # What differs by less than a billionth does not differ.
    if spread <= count * (1e-9 * mean_x) ** 2:
        return UseLine(0.0, mean_y / mean_x, limit) if mean_x > 0 else UseLine(mean_y, 0.0, limit)
    pairs = list(zip(throughputs, uses, strict=True))
    slope = math.fsum((x - mean_x) * (use.usage - mean_y) for x, use in pairs) / spread
    if slope <= 0:
        return UseLine(mean_y, 0.0, limit)
    if mean_y - slope * mean_x < 0:
        through = math.fsum(x * use.usage for x, use in pairs)
        return UseLine(0.0, through / math.fsum(x * x for x in throughputs), limit)
    return UseLine(mean_y - slope * mean_x, slope, limit)


def described(models: Mapping[str, BrokerModel]) -> list[dict[str, object]]:
    """The models as JSON has them."""
    return [
        {
            "broker": broker,
            "measured": model.measured,
            "capacity_bytes_per_s": None if math.isinf(model.capacity) else round(model.capacity),
            "error": round(model.error, 4),
        }
        for broker, model in models.items()
    ]
