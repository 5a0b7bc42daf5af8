"""Puts a node's part in balancing load together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.balance.bundle_meter import BundleMeter
from anabranch.broker.balance.counts import BalanceCounts
from anabranch.broker.balance.metrics import BalanceMetrics, LoadMetrics
from anabranch.broker.balance.reporter import (
    BalanceReporter,
    BrokerLoadOutbox,
    TopBundlesOutbox,
)
from anabranch.broker.balance.resources import ResourceMeter
from anabranch.broker.balance.runner import BalanceRunner
from anabranch.broker.load.reporter import SegmentLoadReporter
from anabranch.broker.operations import Operations
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.channel.load.loads import LoadTable
from anabranch.core.balance.strategies import Strategies, StrategyKind
from anabranch.core.errors import InvalidInputError


def resource_meter(settings: Settings) -> ResourceMeter:
    """Returns the meter of this process; call it in the thread of the event loop."""
    speed_gbps = settings.balance.override_broker_nic_speed_gbps
    return ResourceMeter(threading.get_native_id(), speed_gbps)


def build_balance(
    operations: Operations,
    board: LoadBoard,
    counts: BalanceCounts,
    segments: SegmentLoadReporter,
    table: LoadTable,
    loads: BrokerLoadOutbox,
    top: TopBundlesOutbox,
    meter: ResourceMeter,
) -> BalanceReporter:
    """Returns the reporter, to be run, that measures this node and its bundles and balances by
    that.
    """
    topics, current = operations.topics, operations.configuration.current
    service = topics.access.service
    bundles = BundleMeter(
        service,
        lambda: segments.inventory.topics,
        table,
        operations.traffic,
    )
    reporter = BalanceReporter(
        service.runtime,
        board,
        meter.read,
        bundles.read,
        loads,
        top,
        _interval_s(current.now),
    )

    def follow(now: Settings) -> None:
        reporter.interval_s = _interval_s(now)

    current.subscribe(follow)
    service.runtime.metrics.registry.register(LoadMetrics(service.runtime.core.me, reporter, board))
    service.runtime.core.balance.strategies = installed()
    balancer = BalanceRunner(
        service.runtime, board, counts, lambda: reporter.bundles, bundles.topics
    )
    service.tickers.append(balancer.ticked)
    return reporter


def _interval_s(settings: Settings) -> float:
    return settings.balance.report_update_min_interval_millis / 1000


def build_counts(operations: Operations, runtime: Runtime) -> BalanceCounts:
    """Returns the counts of the balancer's decisions, from the first entry that is read on."""
    registry, lookups = runtime.metrics.registry, operations.lookups
    counts = BalanceCounts(runtime.core.me, registry)
    runtime.listeners.append(counts.folded)
    runtime.on_closed = counts.disconnected
    registry.register(BalanceMetrics(counts, runtime, lookups))
    return counts


def installed() -> Strategies:
    """Returns all that are installed beside Anabranch. It reads files, and runs their imports."""
    return Strategies(
        {
            kind: {each.name: _loaded(each) for each in entry_points(group=kind.value)}
            for kind in StrategyKind
        }
    )


class _Refusal:
    """In the place of a strategy that cannot be loaded: it says so when it is asked."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, *given: object) -> None:
        raise InvalidInputError(self._why)


def _loaded(entry: EntryPoint) -> Callable[..., Any]:
    try:
        strategy: object = entry.load()
    except Exception as error:  # noqa: BLE001 - it is another's code, which may do anything
        why = f"{entry.value} cannot be loaded: {type(error).__name__}: {error}"
        return _Refusal(why)
    return strategy if callable(strategy) else _Refusal(f"{entry.value} is no function")
