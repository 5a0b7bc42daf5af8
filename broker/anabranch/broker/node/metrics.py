"""A node's metrics of itself: its standing among the others, and its place in the log."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.broker.http.guards.connections import Connections
from anabranch.broker.metrics.ports import measure_strangers
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.operations import Operations
from anabranch.broker.runtime import Runtime
from anabranch.core.effects import BrokerState
from anabranch.wire import clock
from anabranch.wire.server.gate import Gate


def measure_node(runtime: Runtime, operations: Operations, metrics: Metrics) -> None:
    """Registers the gauges; each is asked for when the metrics are read."""
    core = runtime.core
    metrics.gauge(
        "anabranch_owned_bundles",
        "Bundles that this node owns.",
        lambda: len(core.serving),
    )
    metrics.gauge(
        "anabranch_is_leader", "1 while this node leads.", lambda: float(core.is_leader())
    )
    metrics.gauge(
        "anabranch_serving",
        "1 while this node may own bundles.",
        lambda: float(core.mode is BrokerState.SERVING),
    )
    metrics.gauge(
        "anabranch_lease_remaining_seconds",
        "Time that this node may still act without a new acknowledged heartbeat.",
        lambda: core.lease.remaining_s(clock.now()),
    )
    metrics.gauge(
        "anabranch_fold_lag_records",
        "Records that another node has read and this one has not.",
        lambda: max(0, runtime.ahead - runtime.view.next_offset),
    )
    metrics.gauge(
        "anabranch_log_next_offset",
        "The first log offset that is not read yet.",
        lambda: runtime.view.next_offset,
    )
    metrics.gauge(
        "anabranch_snapshot_horizon_offset",
        "The log offset of the newest known snapshot; -1 for none.",
        lambda: runtime.view.horizon,
    )
    metrics.gauge(
        "anabranch_concerns",
        "Concerns of a serving node; `/admin/v2/brokers/health` names them.",
        lambda: len(operations.concerns()),
    )
    metrics.gauge(
        "anabranch_waiting_lookups",
        "Requests that wait for a bundle to settle.",
        lambda: runtime.watching,
    )
    metrics.gauge("anabranch_brokers", "Brokers that take part.", lambda: len(operations.brokers()))


def measure_connections(
    connections: Callable[[], int], gate: Gate, http: Connections, metrics: Metrics
) -> None:
    """Registers how many clients are connected."""
    metrics.gauge("anabranch_http_connections", "Connections to the HTTP port.", lambda: http.count)
    metrics.gauge(
        "anabranch_client_connections",
        "Connections of clients to the binary port.",
        connections,
    )
    measure_strangers(gate, http, metrics)
