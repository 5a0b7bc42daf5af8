"""Metrics of the clients of a node's or a proxy's ports: their use of resources, and refusals."""

from __future__ import annotations

from typing import Protocol

from anabranch.broker.metrics.shown import ShownValues
from anabranch.wire.server.gate import Gate


class LimitedPort(Protocol):
    """An HTTP port, as far as its refusals are counted."""

    def refusals(self) -> int:
        """Returns the number of connections that a limit, or malformed bytes, ended."""
        ...


def measure_strangers(gate: Gate, http: LimitedPort, shown: ShownValues) -> None:
    """Registers metrics of the resources that limits bound, and of refusals."""
    shown.total(
        "anabranch_http_refused",
        "HTTP connections ended by a limit: too many, too large, too slow or malformed.",
        http.refusals,
    )
    shown.gauge(
        "anabranch_client_addresses",
        "Their addresses.",
        lambda: gate.account.strangers,
    )
    shown.gauge(
        "anabranch_client_watches",
        "Watches and consumers of clients of the binary port.",
        lambda: gate.account.watches,
    )
    shown.gauge(
        "anabranch_client_memory_bytes",
        "Untaken answers and unserved requests of clients of the binary port.",
        lambda: gate.memory,
    )
    shown.totals(
        "anabranch_wire_refusals",
        "Refusals and disconnections of clients of the binary port.",
        "reason",
        lambda: {refusal.value: count for refusal, count in gate.counts.items()},
    )
