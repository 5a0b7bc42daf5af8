"""Metrics of the clients of a node's or a proxy's ports: their use of resources, and refusals."""

from __future__ import annotations

from anabranch.broker.http.guards.connections import Connections
from anabranch.broker.metrics.shown import ShownValues
from anabranch.wire.server.gate import Gate


def measure_strangers(gate: Gate, http: Connections, shown: ShownValues) -> None:
    """Registers metrics of the resources that limits bound, and of refusals."""
    shown.total(
        "anabranch_http_refused",
        "HTTP connections that ended by a limit: too many, too large, too slow or malformed.",
        lambda: sum(http.refused.counts.values()),
    )
    shown.gauge(
        "anabranch_client_addresses",
        "Addresses that they come from; an exempt one counts for each connection.",
        lambda: gate.account.strangers,
    )
    shown.gauge(
        "anabranch_client_watches",
        "Watches and consumers of clients of the binary port.",
        lambda: gate.account.watches,
    )
    shown.gauge(
        "anabranch_client_memory_bytes",
        "Bytes that clients of the binary port have not taken, and requests not served yet.",
        lambda: gate.memory,
    )
    shown.totals(
        "anabranch_wire_refusals",
        "Refusals and disconnections of clients of the binary port.",
        "reason",
        lambda: {refusal.value: count for refusal, count in gate.counts.items()},
    )
