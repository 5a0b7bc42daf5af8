"""The loads of a broker's bundles, and the choice of those that it reports to the leader.

All loads stay with their broker, which splits by them. The broker tells the leader the highest
ones, because the leader may move those. The report begins with the least loaded of them, because
the shedder offers them in this order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import nlargest

import msgspec

from anabranch.core.balance.broker_load import is_sound, percent_of_change
from anabranch.core.balance.policies import Policies
from anabranch.core.balance.settings import BalanceSettings, is_system_namespace

_THROUGHPUT_STEP = 100_000
_RATE_STEP = 100
_COUNT_STEP = 500


class BundleLoad(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The load of one bundle: messages and bytes a second of its topics, and the number of its
    things.
    """

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    producers: int = 0
    consumers: int = 0

    @property
    def msg_throughput(self) -> float:
        """Bytes a second, in and out."""
        return self.msg_throughput_in + self.msg_throughput_out

    @property
    def msg_rate(self) -> float:
        """Messages a second, in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def is_sound(self) -> bool:
        """Tells whether all its numbers are finite, not negative and no NaN."""
        return all(map(is_sound, msgspec.structs.astuple(self)))


class TopBundlesLoadData(msgspec.Struct, frozen=True, rename="camel"):
    """The highest loaded bundles of a broker, the least loaded of them first."""

    bundles: tuple[tuple[str, BundleLoad], ...] = ()
    updated_at_ms: int = msgspec.field(default=0, name="updatedAt")


def top_bundles(
    loads: Mapping[str, BundleLoad],
    settings: BalanceSettings,
    policies: Policies,
    now_ms: int,
) -> TopBundlesLoadData:
    """The report of a broker: the highest loaded among those bundles that could be moved."""
    ranked = (
        (rank(load), name)
        for name, load in loads.items()
        if _reported(name, load, settings, policies)
    )
    highest = nlargest(settings.max_number_of_bundles_in_bundle_load_report, ranked)
    return TopBundlesLoadData(tuple((name, loads[name]) for _, name in reversed(highest)), now_ms)


def top_change_percent(before: TopBundlesLoadData, now: TopBundlesLoadData) -> float:
    """The largest change of a bundle's bytes or messages a second; endless for other bundles."""
    told = dict(before.bundles)
    if told.keys() != {name for name, _ in now.bundles}:
        return math.inf
    changes = (
        percent_of_change(getattr(told[name], field), getattr(load, field))
        for name, load in now.bundles
        for field in ("msg_throughput_in", "msg_throughput_out", "msg_rate_in", "msg_rate_out")
    )
    return max(changes, default=0.0)


def _reported(bundle: str, load: BundleLoad, settings: BalanceSettings, policies: Policies) -> bool:
    if load.msg_throughput == 0 or not load.is_sound:
        return False
    namespace = bundle.rpartition("/")[0]
    if is_system_namespace(namespace) or namespace in settings.shedding_excluded_namespaces:
        return False
    return settings.shedding_bundles_with_policies_enabled or not policies.binds(namespace)


Rank = tuple[int, int, int, int]


def rank(load: BundleLoad) -> Rank:
    """The order of bundles by load: in before out before rate, so rounded that a flutter is none.

    >>> rank(BundleLoad(msg_throughput_in=149e3)) < rank(BundleLoad(msg_throughput_in=150e3))
    True
    """
    return (
        _rounded(load.msg_throughput_in, _THROUGHPUT_STEP),
        _rounded(load.msg_throughput_out, _THROUGHPUT_STEP),
        _rounded(load.msg_rate, _RATE_STEP),
        (load.topics + load.consumers + load.producers) // _COUNT_STEP,
    )


def _rounded(number: float, step: int) -> int:
    """The number of steps, a half being one more."""
    return math.floor(number / step + 0.5)
