"""What a setting of the balancer came to, and several of them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.core.balance.settings import BalanceSettings
from anabranch.spark_replay.balance.brokers import BrokerModel, described
from anabranch.spark_replay.report.charts import Bins
from anabranch.spark_replay.report.summary import clock


class ReplayedMove(msgspec.Struct, frozen=True, array_like=True):
    """A bundle that was moved. `before`, `predicted`: the deviation by the reported loads, and what
    the decision expected; `flaps`: it goes back to the broker that it left of late.
    """

    at_ms: int
    bundle: str
    source: str
    destination: str
    reason: str
    before: float
    predicted: float
    flaps: bool


class BalanceFigures(msgspec.Struct, frozen=True):
    """What a setting is judged by. Times in seconds, `_s`; deviations are of the true loads.

    `acting`: cycles that moved something. `moved_again`: bundles that were moved more than once.
    `flaps`: moves back to the broker that the bundle had left of late. `until_below_s`: from the
    beginning until the deviation was at this setting's own target for the first time, None for
    never; `above_s`: how long it was above that; `above_first_s`: above the target of the first
    setting, the same yardstick for all. `ended`: cycles by why they decided no more,
    in the names of `RoundEnd`. `decided_by`: moves by the strategy that decided; `faults`: cycles
    in which the one that is set did not, by why.
    """

    seconds: float
    cycles: int
    acting: int
    moves: int
    bundles_moved: int
    moved_again: int
    flaps: int
    deviation_start: float
    deviation_mean: float
    deviation_max: float
    deviation_end: float
    until_below_s: float | None
    above_s: float
    above_first_s: float
    reasons: Mapping[str, int]
    ended: Mapping[str, int]
    decided_by: Mapping[str, int]
    faults: Mapping[str, int]

    def form(self) -> dict[str, object]:
        """The figures as JSON has them."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in msgspec.to_builtins(self).items()
        }


class BalanceOutcome(msgspec.Struct, frozen=True):
    """One setting. `deviations`: by bin of the plots; `log`: the first moves, not all of them."""

    name: str
    figures: BalanceFigures
    deviations: list[float]
    log: list[ReplayedMove]


class BalanceComparison(msgspec.Struct, frozen=True):
    """Several settings on the same recording. `faults`: what was left out, and why, by name.

    `model`: what was assumed, by name.
    """

    recording: str
    span: tuple[int, int]
    bundles: int
    brokers: Mapping[str, BrokerModel]
    settings: Mapping[str, BalanceSettings]
    outcomes: Sequence[BalanceOutcome]  # in the order of the settings
    faults: Mapping[str, str]
    model: Mapping[str, float]
    bins: Bins
    seconds: float

    def json(self) -> str:
        """The comparison as JSON, for programs."""
        begin_ms, end_ms = self.span
        found: dict[str, Any] = {
            "recording": self.recording,
            "from": clock(begin_ms),
            "to": clock(end_ms),
            "bundles": self.bundles,
            "brokers": described(self.brokers),
            "seconds": round(self.seconds, 2),
            "model": self.model,
            "left_out": self.faults,
            "bins": {"from": clock(self.bins.start_ms), "seconds": self.bins.width_ms / 1000},
            "settings": [
                {
                    "name": each.name,
                    "settings": differing(self.settings[each.name]),
                    **each.figures.form(),
                    "deviation": [round(value, 4) for value in each.deviations],
                    "log": [_move(move) for move in each.log],
                }
                for each in self.outcomes
            ],
        }
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def differing(settings: BalanceSettings) -> dict[str, Any]:
    """What differs from the default, by the names of the configuration."""
    default: dict[str, Any] = msgspec.to_builtins(BalanceSettings())
    own: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: value for name, value in own.items() if value != default[name]}


def _move(move: ReplayedMove) -> dict[str, Any]:
    return {
        "at": clock(move.at_ms),
        "bundle": move.bundle,
        "from": move.source,
        "to": move.destination,
        "reason": move.reason,
        "deviation": round(move.before, 4),
        "predicted": round(move.predicted, 4),
        "flaps": move.flaps,
    }
