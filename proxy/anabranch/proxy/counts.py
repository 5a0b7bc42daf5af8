"""A proxy's own metrics, for Prometheus."""

from __future__ import annotations

from functools import partial
from typing import Final

from anabranch.broker.metrics.shown import ShownValues

_SHOWN: Final = {  # by attribute
    "connections": (
        "pulsar_proxy_new_connections",
        "Connections that clients have made to the binary port.",
    ),
    "commands": ("anabranch_proxy_commands", "Commands of clients that were passed on to nodes."),
    "refusals": (
        "anabranch_proxy_refusals",
        "Commands refused by the proxy itself: no node answered, or a limit.",
    ),
    "lost_links": (
        "anabranch_proxy_lost_node_connections",
        "Connections to nodes that ended before those of their clients.",
    ),
    "http_requests": (
        "anabranch_proxy_http_requests",
        "HTTP requests that were passed on to nodes.",
    ),
    "http_failures": (
        "anabranch_proxy_http_failures",
        "HTTP requests without a whole answer from a node.",
    ),
}


class ProxyCounts(ShownValues):
    """Plain numbers, which cost nothing where they are counted; shown by `registry`."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = self.commands = self.refusals = self.lost_links = 0
        self.http_requests = self.http_failures = 0

    def register(self) -> None:
        """Shows the counts."""
        for count, (name, meaning) in _SHOWN.items():
            self.total(name, meaning, partial(getattr, self, count))
