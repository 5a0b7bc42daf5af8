"""Thresholds that follow the recorded noise of the load, if the settings switch that on.

Every cycle leaves a sample. It has the loads that the cycle saw. It also has the number of cycles
in a row for which a reason had held that then went away by itself. For each load the module keeps
an average over about `SPAN` cycles, and the load's distance from it, which is the noise. A move is
no noise: after one the averages begin anew. The noise changes three thresholds:

- The target deviation is `SPREADS` times the noise of brokers' loads. A flutter is no imbalance,
  and loads that stand still may lie closer together.
- A hit count is one more than the longest row whose reason went away by itself.
- The limits of a bundle's traffic rise by a tenth of the share by which bundles' traffic flutters.

None leaves its setting by more than `adjusted_thresholds_max_factor`. Before `SAMPLES_MIN` samples
the settings hold as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.core.balance.settings import BalanceSettings

SPAN: Final = 30
ROWS_KEPT: Final = 60  # from so many of the newest cycles
SAMPLES_MIN: Final = 10
SPREADS: Final = 4.0
LIMITS_RISE: Final = 0.1


class Recorded(msgspec.Struct, frozen=True):
    """The sums of one kind of cycle's samples. `rows`: the lengths for which reasons had held, 0
    for none.

    `count`: the number of samples that tell the noise. The first one after a move does not.
    """

    count: int = 0
    means: Mapping[str, float] = {}
    variances: Mapping[str, float] = {}
    rows: tuple[int, ...] = ()

    def sampled(self, loads: Mapping[str, float], row: int) -> Recorded:
        """With one more cycle."""
        means: dict[str, float] = {}
        variances: dict[str, float] = {}
        for name, load in loads.items():
            off = load - self.means.get(name, load)
            means[name] = load - off * (1 - 1 / SPAN)
            kept = self.variances.get(name, 0.0)
            is_known = name in self.means
            variances[name] = (kept + off * off / SPAN) * (1 - 1 / SPAN) if is_known else kept
        rows = (*self.rows, row)[-ROWS_KEPT:]
        return Recorded(self.count + bool(self.means), means, variances, rows)

    def disturbed(self) -> Recorded:
        """After a move."""
        return msgspec.structs.replace(self, means={}) if self.means else self

    @property
    def noise(self) -> float:
        """The distance of loads from their averages: the root mean square over all."""
        found = self.variances.values()
        return math.sqrt(math.fsum(found) / len(found)) if found else 0.0

    @property
    def share(self) -> float:
        """The distance of loads from their averages, all together, as a share of these averages."""
        whole = math.fsum(self.means.values())
        apart = math.fsum(math.sqrt(self.variances[name]) for name in self.means)
        return apart / whole if whole > 0 else 0.0


class Thresholds(msgspec.Struct, frozen=True):
    """The settings with the thresholds that hold; `why`: in words, "" if they are as set."""

    settings: BalanceSettings
    why: str = ""


def shedding_thresholds(settings: BalanceSettings, recorded: Recorded) -> Thresholds:
    """The target deviation and the hit count of shedding; loads are those of brokers, less the mean
    of all.
    """
    if not _is_adjusted(settings, recorded):
        return Thresholds(settings)
    noise, own = recorded.noise, settings.broker_load_target_std
    target = _bounded(SPREADS * noise, own, settings)
    hits, why = _hits(recorded, settings.shedding_condition_hit_count_threshold, settings)
    held = msgspec.structs.replace(
        settings, broker_load_target_std=target, shedding_condition_hit_count_threshold=hits
    )
    by = f"as loads flutter by {noise:.3f}"
    return Thresholds(held, f"target deviation {target:.3f} in place of {own:g}, {by}; {why}")


def split_thresholds(settings: BalanceSettings, recorded: Recorded) -> Thresholds:
    """The hit count of splitting, and the limits of traffic; loads are the bytes a second of
    bundles.
    """
    if not _is_adjusted(settings, recorded):
        return Thresholds(settings)
    share = recorded.share
    factor = min(1 + LIMITS_RISE * share, settings.adjusted_thresholds_max_factor)
    own = settings.namespace_bundle_split_condition_hit_count_threshold
    hits, why = _hits(recorded, own, settings)
    held = msgspec.structs.replace(
        settings,
        namespace_bundle_max_msg_rate=settings.namespace_bundle_max_msg_rate * factor,
        namespace_bundle_max_bandwidth_mbytes=settings.namespace_bundle_max_bandwidth_mbytes
        * factor,
        namespace_bundle_split_condition_hit_count_threshold=hits,
    )
    by = f"as bundles' traffic flutters by {share:.0%}"
    return Thresholds(held, f"limits of messages and bytes {factor:.2f} times as high, {by}; {why}")


def _is_adjusted(settings: BalanceSettings, recorded: Recorded) -> bool:
    return settings.adjusted_thresholds_enabled and recorded.count >= SAMPLES_MIN


def _hits(recorded: Recorded, own: int, settings: BalanceSettings) -> tuple[int, str]:
    row = max(recorded.rows, default=0)
    hits = round(_bounded(row + 1, own, settings))
    past = f"one went away by itself after {row}" if row else "none went away by itself"
    return hits, f"a reason must hold for more than {hits} cycles in place of {own}, as {past}"


def _bounded(wanted: float, own: float, settings: BalanceSettings) -> float:
    factor = settings.adjusted_thresholds_max_factor
    return min(max(wanted, own / factor), own * factor)
