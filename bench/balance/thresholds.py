"""Thresholds that follow the noise of the load, held against fixed ones on recorded loads.

Loads are those of the back-test's sample, placed in bundles, and on brokers, in several ways. Moves
are replayed by the back-test; splits here, whose parts take their topics with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq
from msgspec.structs import replace

from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.cycle import BalanceCycle
from anabranch.core.balance.recording import BrokerLine, BundleLine, LoadRecording, RecordedLoad
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.splitting import OwnerView, TopicLoad
from anabranch.core.ring import split_bundle_name
from anabranch.spark_replay.backtest.traces import SAMPLE
from anabranch.spark_replay.balance.brokers import models_of
from anabranch.spark_replay.balance.outcome import BalanceFigures
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.run import bins_of
from bench.figure import Measured
from bench.place import Place

_LOADS: Final = 6  # of tweets: other hours of the same ones
_PLACED: Final = 16  # ways in which each kind is placed
_BROKERS, _BUNDLES = 5, 32
_USED: Final = 0.4  # of what all brokers can carry, in the mean
_MINUTE_MS: Final = 60_000
_FIXED: Final = BalanceSettings()
SETTINGS: Final = {
    "fixed": _FIXED,
    "adjusted": replace(_FIXED, adjusted_thresholds_enabled=True),
    "tight": replace(_FIXED, broker_load_target_std=0.1),
}

_Load = Sequence[float]  # of a topic: bytes a second, minute by minute, 1 MB in the mean


def compared(place: Place) -> Measured:
    """How many moves adjusted thresholds make, and how much deviation they leave, as multiples of
    what fixed ones do: the worse of both.
    """
    found: dict[str, Any] = {}
    for kind, placed in _kinds().items():
        ways = [_recording(topics, Random(number)) for number, topics in enumerate(placed)]
        found[kind] = {
            name: _told(_replayed(ways, each)) | _splits(placed, each)
            for name, each in SETTINGS.items()
        }
    worst = max(
        sum(told["adjusted"][each] for told in found.values())
        / sum(told["fixed"][each] for told in found.values())
        for each in ("moves", "deviation")
    )
    return Measured(value=worst, unit="x", judged=worst, goal=1.0, details=found)


def _kinds() -> dict[str, list[list[_Load]]]:
    """Functions by the minute, and tweets by five minutes, 16 hours a topic."""
    table = pq.read_table(SAMPLE).to_pydict()
    rates: dict[str, list[float]] = {}
    for topic, rate in zip(table["topic"], table["msg_rate_in"], strict=True):
        rates.setdefault(topic, []).append(rate)
    functions = [_scaled(each) for name, each in rates.items() if name.startswith("functions")]
    tweets = [each for name, each in rates.items() if name.startswith("tweets")]
    points = 192  # 16 hours
    return {
        "functions": [functions] * _PLACED,
        "tweets": [
            [
                _scaled([each[begin + at // 5] for at in range(points * 5)])
                for begin in range(way % _LOADS * points, 6 * _LOADS * points, _LOADS * points)
                for each in tweets
            ]
            for way in range(_PLACED)
        ],
    }


def _scaled(rates: Sequence[float]) -> _Load:
    mean = math.fsum(rates) / len(rates)
    return [1e6 * each / mean for each in rates] if mean else [0.0] * len(rates)


def _recording(topics: Sequence[_Load], rng: Random) -> LoadRecording:
    """Each topic in some bundle; every second way has all bundles on two brokers to begin with."""
    places = [rng.randrange(_BUNDLES) for _ in topics]
    begun = _BROKERS if rng.random() < 0.5 else 2
    brokers = [f"b{number}:80" for number in range(_BROKERS)]
    owners = [brokers[rng.randrange(begun)] for _ in range(_BUNDLES)]
    capacity = len(topics) * 1e6 / _USED / _BROKERS
    lines: list[BrokerLine | BundleLine] = [BrokerLine(0, each, capacity, 0.05) for each in brokers]
    last = [-1.0] * _BUNDLES
    for minute in range(len(topics[0])):
        sums = [0.0] * _BUNDLES
        for at, topic in zip(places, topics, strict=True):
            sums[at] += topic[minute]
        for at, (before, now) in enumerate(zip(last, sums, strict=True)):
            if now != before:
                load = RecordedLoad(msg_throughput_in=now, topics=2)
                name = f"t/n/0x{at:02x}000000_0x{at + 1:02x}000000"
                lines.append(BundleLine(minute * _MINUTE_MS, name, owners[at], load))
        last = sums
    lines.append(BrokerLine(len(topics[0]) * _MINUTE_MS, brokers[0], capacity, 0.05))
    return LoadRecording(lines)


def _replayed(ways: Sequence[LoadRecording], settings: BalanceSettings) -> list[BalanceFigures]:
    rules = ReplayRules()
    return [
        BalanceReplay(way, models_of(way), settings, _FIXED, rules, bins_of(way, rules))
        .run("")
        .figures
        for way in ways
    ]


def _told(figures: Sequence[BalanceFigures]) -> dict[str, float]:
    return {
        "moves": sum(each.moves for each in figures),
        "flaps": sum(each.flaps for each in figures),
        "deviation": math.fsum(each.deviation_mean for each in figures) / len(figures),
        "above_min": math.fsum(each.above_first_s for each in figures) / len(figures) / 60,
    }


def _splits(placed: Sequence[Sequence[_Load]], settings: BalanceSettings) -> dict[str, float]:
    """One bundle at first, which may have a tenth of all traffic; how many minutes are above that,
    bundle by bundle.
    """
    made = over = 0
    limit = len(placed[0]) * 1e6 / 10
    wanted = replace(settings, namespace_bundle_max_bandwidth_mbytes=limit / 1024 / 1024)
    for number, topics in enumerate(placed):
        rng, cycle = Random(number), BalanceCycle()
        at = [rng.randrange(2**32) for _ in topics]
        bundles = ["t/n/0x00000000_0xffffffff"]
        for minute in range(len(topics[0])):
            loads = {name: _load(name, at, topics, minute) for name in bundles}
            over += sum(each.msg_throughput > limit for each in loads.values())
            found = cycle.split(_view(loads), wanted)
            for cut in found.decisions:
                bundles.remove(cut.bundle)
                bundles += _parts(cut.bundle, cut.boundary)
                made += 1
    return {"splits": made, "over_min": over}


def _load(name: str, at: Sequence[int], topics: Sequence[_Load], minute: int) -> BundleLoad:
    _, whole = split_bundle_name(name)
    mine = [each for place, each in zip(at, topics, strict=True) if place in whole]
    return BundleLoad(msg_throughput_in=sum(each[minute] for each in mine), topics=len(mine))


def _view(loads: Mapping[str, BundleLoad]) -> OwnerView:
    def none(_: str) -> Sequence[TopicLoad]:
        return ()

    return OwnerView(loads, lambda _: True, lambda _: len(loads), (), none)


def _parts(bundle: str, boundary: int) -> list[str]:
    namespace, whole = split_bundle_name(bundle)
    edges = (whole.lower, boundary, whole.upper)
    return [f"{namespace}/0x{edges[n]:08x}_0x{edges[n + 1]:08x}" for n in (0, 1)]
