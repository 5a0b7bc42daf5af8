"""Proxies: who is connected to them, what they pass on, and which nodes answer them."""

from __future__ import annotations

from typing import Final

from anabranch.devkit.dashboards.grafana import (
    RATE_INTERVAL,
    Dashboard,
    PanelUnit,
    Query,
    lines,
    number,
)

_REFUSED: Final = 'anabranch_wire_refusals_total{job="proxies"}'


def _rate(metric: str) -> str:
    return f"sum by (instance) (rate({metric}{RATE_INTERVAL}))"


PROXIES: Final = Dashboard(
    "proxies",
    "proxies",
    of_topics=False,
    panels=(
        number("Connections", "sum(pulsar_proxy_active_connections)", "To the binary ports."),
        number("HTTP", "sum(anabranch_proxy_http_connections)", "Connections to the HTTP ports."),
        number("Nodes", "max(anabranch_proxy_nodes)", "That are known."),
        number(
            "Nodes that answer",
            "min(anabranch_proxy_nodes_answering)",
            "By the proxy that reaches fewest.",
        ),
        lines(
            "Passed on",
            PanelUnit.PER_SECOND,
            "Look-ups and other commands of the binary protocol, and HTTP requests.",
            Query(_rate("anabranch_proxy_lookups_total"), "{{instance}} look-ups"),
            Query(_rate("anabranch_proxy_commands_total"), "{{instance}} commands"),
            Query(_rate("anabranch_proxy_http_requests_total"), "{{instance}} HTTP"),
        ),
        lines(
            "Not answered",
            PanelUnit.PER_SECOND,
            "Commands that a proxy refused itself, and HTTP requests that no node answered.",
            Query(_rate("anabranch_proxy_refusals_total"), "{{instance}} commands"),
            Query(_rate("anabranch_proxy_http_failures_total"), "{{instance}} HTTP"),
        ),
        lines(
            "Refused by limits",
            PanelUnit.PER_SECOND,
            "What clients of the binary port were refused, or disconnected for, by its reason.",
            Query(
                f"sum by (reason) (rate({_REFUSED}{RATE_INTERVAL}))",
                "{{reason}}",
            ),
        ),
        lines(
            "Nodes that went",
            PanelUnit.PER_SECOND,
            "Connections to nodes that ended before their clients', and watches taken elsewhere.",
            Query(_rate("anabranch_proxy_lost_node_connections_total"), "{{instance}} lost"),
            Query(_rate("anabranch_proxy_moved_watches_total"), "{{instance}} watches moved"),
        ),
        lines(
            "New connections",
            PanelUnit.PER_SECOND,
            "Of clients.",
            Query(_rate("pulsar_proxy_new_connections_total"), "{{instance}}"),
        ),
    ),
)
