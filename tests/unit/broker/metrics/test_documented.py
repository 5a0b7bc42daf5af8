"""docs/metrics.md names every metric of a node, as the node describes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.http.guards.connections import Connections
from anabranch.broker.load.reporter import build_reporter
from anabranch.broker.node.balancing import build_balance, build_counts, resource_meter
from anabranch.broker.node.metrics import measure_connections, measure_node
from anabranch.broker.ports import NODE_PORTS, TlsPorts
from anabranch.broker.security.acls import measure_acls
from anabranch.broker.security.node import measure_security
from anabranch.broker.snapshots.trim_watch import ArchiveMetrics, TrimWatch
from anabranch.channel.load.loads import LoadTable
from anabranch.proxy.proxy import Proxy
from anabranch.proxy.settings import load_proxy_settings
from anabranch.wire.server.gate import Gate
from support import steady
from support.balance import Outbox
from support.memory_cluster import MemoryNode, memory_cluster
from support.metrics_page import ROOT, Row, documented

_NAME = re.compile(r"(anabranch|pulsar|brk)_[a-zA-Z0-9_]+")


def _described(registry: CollectorRegistry) -> Iterator[Row]:
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Row(name, family.type, ", ".join(labels), family.documentation)


SECURED = {
    "authenticationEnabled": True,
    "authenticationProviders": "tls",
    "tlsTrustCertsFilePath": "authority.pem",
}


_UNUSED: Any = None  # in the place of what measuring loads asks of Kafka: nothing does here


def _measure_all(node: MemoryNode) -> None:
    """What a node with Kafka and a port for clients registers besides."""
    measure_node(node.runtime, node.operations, node.metrics)
    wire = node.settings.wire_limits
    http = Connections(PlainTextResponse(""), node.settings.http_limits)
    measure_connections(lambda: 0, Gate(wire.account), http, node.metrics)
    TlsPorts(node.settings, node.settings, NODE_PORTS).measure(node.metrics)
    measure_security(None, node.metrics)
    measure_acls(None, node.metrics)
    node.metrics.registry.register(ArchiveMetrics(TrimWatch(1.0)))
    service, reports = node.operations.topics.access.service, node.operations.traffic
    counts = build_counts(node.operations, node.runtime)
    table = LoadTable()
    segments = build_reporter(service, reports, node.settings, table, _UNUSED, _UNUSED)
    build_balance(
        node.operations,
        LoadBoard(node.runtime),
        counts,
        segments,
        table,
        Outbox(),
        Outbox(),
        resource_meter(node.settings),
    )


def _of_a_node() -> list[Row]:
    found: list[Row] = []

    async def body() -> None:
        async with memory_cluster(1, **SECURED) as cluster:
            _measure_all(cluster.nodes[0])
            found.extend(_described(cluster.nodes[0].metrics.registry))

    steady.run(body())
    return sorted(found)


def _of_a_proxy() -> list[Row]:
    found: list[Row] = []

    async def body() -> None:
        settings = load_proxy_settings(None, {}, {"brokerWebServiceURL": "http://node:8080"})
        found.extend(_described(Proxy(settings).counts.registry))

    steady.run(body())
    return sorted(found)


def test_the_page_has_each_metric_with_kind_labels_and_meaning() -> None:
    found = [*_of_a_node(), *_of_a_proxy()]
    assert len(found) > 30
    wanted = {row: row.line() for row in found}
    missing = [line for row, line in wanted.items() if row not in documented()]
    assert not missing, "paste into docs/metrics.md:\n" + "\n".join(missing)
    too_many = [row.name for row in documented() if row not in wanted]
    assert not too_many, f"docs/metrics.md describes what nobody has: {too_many}"


def test_no_metric_is_registered_where_the_page_would_not_be_asked_for_it() -> None:
    """Found in the sources: a metric that only a node on a real Kafka registers is one too."""
    names = {row.name.removesuffix("_total") for row in documented()}
    assert names
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "broker").rglob("*.py")
        for name in _named(path)
        if name.removesuffix("_total") not in names
    }
    assert not unknown


def _named(path: Path) -> Iterator[str]:
    """Constants that begin a call's arguments and look like a metric's name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            text = node.args[0].value
            if isinstance(text, str) and _NAME.fullmatch(text):
                yield text
