"""A proxy's own metrics, for Prometheus."""

from __future__ import annotations

from anabranch.broker.metrics.shown import ShownValues


class ProxyCounts(ShownValues):
    """Plain numbers, which cost nothing where they are counted; shown by `registry`."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0
        self.commands = 0
        self.refusals = 0
        self.lost_links = 0
        self.http_requests = 0
        self.http_failures = 0

    def register(self) -> None:
        """Shows the counts."""
        self.total(
            "pulsar_proxy_new_connections",
            "Connections that clients have made to the binary port.",
            lambda: self.connections,
        )
        self.total(
            "anabranch_proxy_commands",
            "Commands of clients that were passed on to nodes.",
            lambda: self.commands,
        )
        self.total(
            "anabranch_proxy_refusals",
            "Commands refused by the proxy itself: no node answered, or a limit.",
            lambda: self.refusals,
        )
        self.total(
            "anabranch_proxy_lost_node_connections",
            "Connections to nodes that ended before those of their clients.",
            lambda: self.lost_links,
        )
        self.total(
            "anabranch_proxy_http_requests",
            "HTTP requests that were passed on to nodes.",
            lambda: self.http_requests,
        )
        self.total(
            "anabranch_proxy_http_failures",
            "HTTP requests without a whole answer from a node.",
            lambda: self.http_failures,
        )
