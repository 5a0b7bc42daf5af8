"""Three strategies of one's own; each is a pure function of what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.choosing import Candidate
from anabranch.core.balance.counters import SplitReason
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.strategies import Cut, WantedMove

_CONSUMERS_MAX: Final = 400


def relieve(view: ClusterView, settings: BalanceSettings) -> Iterator[WantedMove]:
    """The heaviest bundle of the most loaded broker goes to the least loaded one."""
    by_load = sorted(view.loads, key=lambda broker: view.loads[broker].weighted_max_ema)
    low, high = by_load[0], by_load[-1]
    difference = view.loads[high].weighted_max_ema - view.loads[low].weighted_max_ema
    if difference > settings.broker_load_target_std and high in view.top:
        for bundle, _ in view.top[high].bundles[-1:]:
            yield WantedMove(bundle, low)


def assign(
    unit: str, kept: Sequence[Candidate], counts: Mapping[str, int], settings: BalanceSettings
) -> str:
    """Whoever has fewest goes first, however loaded it is."""
    return min((each.broker for each in kept), key=lambda broker: (counts[broker], broker))


def split(loads: Mapping[str, BundleLoad], settings: BalanceSettings) -> Iterator[Cut]:
    """Bundles with too many consumers are cut."""
    for bundle, load in loads.items():
        if load.consumers > _CONSUMERS_MAX:
            yield Cut(bundle, SplitReason.SESSIONS, f"{load.consumers} consumers")
