"""`BrokerLoadData`: a broker's report on its load, with its averages and the times of reports.

One measurement gives two loads. `max_resource_usage` decides whether a report is due.
`weighted_max_ema` is a moving average that all decisions use. Both are shares: 1.0 is all of a
resource. A load that was never measured counts as full. So a choice of the least loaded gives
nothing to a broker that has just started.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import msgspec

from anabranch.core.balance.settings import BalanceSettings


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


CLEAR_INTERVAL_MS: Final = 10_000
_MINUTE_MS: Final = 60_000


class Resources(msgspec.Struct, frozen=True):
    """Use and limit of each resource of a broker."""

    cpu: ResourceUsage = NOTHING_USED
    memory: ResourceUsage = NOTHING_USED
    direct_memory: ResourceUsage = NOTHING_USED
    bandwidth_in: ResourceUsage = NOTHING_USED
    bandwidth_out: ResourceUsage = NOTHING_USED


class LoadSample(Resources, frozen=True):
    """One measurement of a broker: resources, and rates per second of all its bundles.

    Throughputs are bytes a second, rates messages a second.
    """

    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bundle_count: int = 0
    topics: int = 0


class BrokerLoadData(LoadSample, frozen=True):
    """A broker's load: its last measurement, and what is made of all.

    The defaults are those of a broker that was never measured. Times are the broker's milliseconds.
    """

    max_resource_usage: float = 1.0
    weighted_max_ema: float = 1.0
    msg_throughput_ema: float = 0.0
    updated_at_ms: int = 0
    reported_at_ms: int = 0

    @property
    def msg_throughput(self) -> float:
        """Bytes a second, in and out."""
        return self.msg_throughput_in + self.msg_throughput_out

    @property
    def msg_rate(self) -> float:
        """Messages a second, in and out."""
        return self.msg_rate_in + self.msg_rate_out


FRESH: Final = BrokerLoadData()  # also what is left after a load was cleared


def updated(
    load: BrokerLoadData, sample: LoadSample, settings: BalanceSettings, now_ms: int
) -> BrokerLoadData:
    """The load after a measurement. The first one after `FRESH` takes no history."""
    five = (
        sample.cpu.percent,
        sample.memory.percent,
        sample.direct_memory.percent,
        sample.bandwidth_in.percent,
        sample.bandwidth_out.percent,
    )
    cpu, _, *others = five  # the rule leaves memory out here; its weight decides below
    weighted = max(map(float.__mul__, five, map(float, settings.weights))) / 100
    throughput = sample.msg_throughput_in + sample.msg_throughput_out
    history = settings.history_resource_percentage if load.updated_at_ms else 0.0
    return msgspec.structs.replace(
        load,
        **msgspec.structs.asdict(sample),
        max_resource_usage=max(cpu, *others) / 100,
        weighted_max_ema=_average(load.weighted_max_ema, weighted, history),
        msg_throughput_ema=_average(load.msg_throughput_ema, throughput, history),
        updated_at_ms=now_ms,
    )


def _average(before: float, now: float, history: float) -> float:
    """Their mean; one that a bad measurement has spoilt begins anew."""
    if not history or not is_sound(before):
        return now
    return before * history + (1 - history) * now


def has_cooled(load: BrokerLoadData, unloaded_ms: int, settings: BalanceSettings) -> bool:
    """Tells whether the load reflects the broker's bundles without the one given away at
    `unloaded_ms`.
    """
    return load.updated_at_ms - unloaded_ms >= settings.shedding_delay_in_seconds * 1000


def report_due(
    load: BrokerLoadData,
    reported: BrokerLoadData,
    settings: BalanceSettings,
    now_ms: int,
    *,
    force: bool = False,
) -> bool:
    """Tells whether the broker must publish the load: too long after `reported`, or too different
    from it.
    """
    waited_ms = now_ms - reported.reported_at_ms
    return (
        force
        or waited_ms > settings.report_update_max_interval_minutes * _MINUTE_MS
        or change_percent(reported, load) > settings.report_update_threshold_percentage
    )


def change_percent(before: BrokerLoadData, now: BrokerLoadData) -> float:
    """The largest change among use of resources, message rate, throughput and bundles.

    One that is no number is none.
    """
    changes = (
        100 * abs(before.max_resource_usage - now.max_resource_usage),
        percent_of_change(before.msg_rate, now.msg_rate),
        percent_of_change(before.msg_throughput, now.msg_throughput),
        percent_of_change(before.bundle_count, now.bundle_count),
    )
    return max((each for each in changes if not math.isnan(each)), default=0.0)


def clear_due(cleared_at_ms: int, now_ms: int) -> bool:
    """Tells whether the load may be cleared again after a bundle's coming or going made it
    wrong.
    """
    return now_ms - cleared_at_ms >= CLEAR_INTERVAL_MS
