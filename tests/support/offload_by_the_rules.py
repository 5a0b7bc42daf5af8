"""What a pair of brokers exchanges once more, each bundle asked all in the order of the rules.

Core asks first what is found fastest; whatever it skips must be what this refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.offload import (
    BundleMove,
    ClusterView,
    Exchange,
    ExchangeStep,
    Pair,
    Permits,
    Stopped,
    Unmoved,
)

_RELIEF: Final = 0.75


def exchanged(pair: Pair, view: ClusterView, permits: Permits) -> Exchange:
    """What the pair exchanges, found the slow way."""
    offered = view.top.get(pair.source, _NOTHING).bundles
    if len(offered) < 2:
        stopped = Stopped.ONE_BUNDLE if offered else Stopped.NO_REPORT
        return Exchange(pair.source, pair.destination, pair.wanted, 0.0, (), stopped)
    coming = _coming_back(pair, view, permits) if permits.transfers else iter(())
    wanted, before = pair.wanted, 0.0
    moved, remaining = 0.0, len(offered)  # what goes, less what comes back
    steps: list[ExchangeStep] = []
    unmoved: list[tuple[str, Unmoved]] = []
    stopped, next_bundle = Stopped.ALL_SEEN, ""
    for bundle, load in offered:
        refusal = permits.refusal(bundle, pair.source, pair.destination)
        if refusal is not None:
            unmoved.append((bundle, refusal))
            continue
        if remaining <= 1:
            stopped, next_bundle = Stopped.LAST_BUNDLE, bundle
            break
        throughput = throughput_of(load)
        if throughput == 0:
            unmoved.append((bundle, Unmoved.NO_TRAFFIC))
            continue
        too_much = moved + throughput > wanted
        back = _swap(pair, moved + throughput, coming) if too_much else []
        if too_much and not back:
            stopped, next_bundle = Stopped.TOO_MUCH, bundle
            break
        then = moved + throughput - sum(amount for _, amount in back)
        squares = pair.squares(then)
        if squares > before:
            stopped, next_bundle = Stopped.WORSE, bundle
            break
        moves = [BundleMove(name, pair.destination, pair.source) for name, _ in back]
        steps.append(
            ExchangeStep((*moves, BundleMove(bundle, pair.source, pair.destination)), squares)
        )
        moved, before, remaining = then, squares, remaining - 1
    return Exchange(
        pair.source,
        pair.destination,
        wanted,
        moved,
        tuple(steps),
        stopped,
        next_bundle,
        tuple(unmoved),
    )


_NOTHING: Final = TopBundlesLoadData()


def throughput_of(load: BundleLoad) -> float:
    """Bytes a second in and out; 0 where that is no number, so that the bundle is left alone."""
    numbers = msgspec.structs.astuple(load)
    return load.msg_throughput if all(0 <= each <= 1e15 for each in numbers) else 0.0


def _coming_back(pair: Pair, view: ClusterView, permits: Permits) -> Iterator[tuple[str, float]]:
    """The destination's bundles that may go to the source, each looked at once."""
    for bundle, load in view.top.get(pair.destination, _NOTHING).bundles:
        throughput = throughput_of(load)
        if throughput > 0 and permits.refusal(bundle, pair.destination, pair.source) is None:
            yield bundle, throughput


def _swap(pair: Pair, going: float, coming: Iterator[tuple[str, float]]) -> list[tuple[str, float]]:
    """What comes back when `going` leaves in all: so much that the source does not become the less
    loaded one, and so little that it is relieved. Nothing where there is no such thing.
    """
    most = pair.high.msg_throughput
    high, low = most - going, pair.low.msg_throughput + going
    back: list[tuple[str, float]] = []
    for bundle, throughput in coming:
        if high + throughput < most and low - throughput < most:
            back.append((bundle, throughput))
            high, low = high + throughput, low - throughput
            if low <= high < _RELIEF * most:
                return back
    return []
