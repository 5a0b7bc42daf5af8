"""PromQL of dashboards and alerts: which metrics a query names, and by which labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import promql_parser
import yaml

from support.metrics_page import ROOT, documented

DASHBOARDS: Final = ROOT / "docker" / "grafana" / "dashboards"
ALERTS: Final = ROOT / "docker" / "prometheus" / "alerts.yml"
# What Prometheus adds to each metric that it reads.
_OF_THE_SCRAPE: Final = frozenset({"job", "instance"})
_OF_A_HISTOGRAM: Final = {"_bucket": {"le"}, "_sum": set(), "_count": set()}


class Named(NamedTuple):
    """A metric that a query names, with the labels that it asks for."""

    metric: str
    labels: frozenset[str]


def rules_of_alerts() -> dict[str, dict[str, Any]]:
    """Each alert's rule, by its name."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def of_alerts() -> dict[str, str]:
    """Each alert's query, by its name."""
    return {name: rule["expr"] for name, rule in rules_of_alerts().items()}


def of_dashboards() -> dict[str, str]:
    """Each panel's query, by the dashboard, the panel's title and the query's letter.

    What Grafana fills in is filled in: all topics, and five minutes.
    """
    found = {}
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text("utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"].replace("$__rate_interval", "5m").replace("$topic", ".+")
                found[f"{file.stem}: {panel['title']} {target['refId']}"] = query
    return found


def exported() -> Mapping[str, frozenset[str]]:
    """The labels of everything that Prometheus has of the stack, by the metric's name."""
    found = {"up": _OF_THE_SCRAPE, "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
    for row in (*documented(), *documented("containers.md")):
        labels = {label.strip() for label in row.labels.split(",") if label.strip()}
        if row.kind == "histogram":
            for suffix, more in _OF_A_HISTOGRAM.items():
                found[row.name + suffix] = _OF_THE_SCRAPE | labels | more
        else:
            found[row.name] = _OF_THE_SCRAPE | labels
    return found


def named_in(query: str) -> list[Named]:
    """Everything that a query names. Raises ValueError where it is no PromQL."""
    return list(_named(promql_parser.parse(query)))


def _named(expression: Any, asked: frozenset[str] = frozenset()) -> Iterator[Named]:
    match expression:
        case promql_parser.VectorSelector():
            matched = {each.name for each in expression.matchers.matchers}
            yield Named(expression.name or "", asked | (matched - {"__name__"}))
        case promql_parser.MatrixSelector():
            yield from _named(expression.vector_selector, asked)
        case promql_parser.AggregateExpr():
            by = expression.modifier.labels if expression.modifier else ()
            yield from _named(expression.expr, frozenset(by))
        case promql_parser.BinaryExpr():
            matching = expression.modifier.matching if expression.modifier else None
            on = frozenset(matching.labels if matching else ())
            yield from _named(expression.lhs, asked | on)
            yield from _named(expression.rhs, asked | on)
        case promql_parser.Call():
            for each in expression.args:
                yield from _named(each, asked)
        case promql_parser.ParenExpr() | promql_parser.SubqueryExpr() | promql_parser.UnaryExpr():
            yield from _named(expression.expr, asked)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise ValueError(f"nobody has told what {expression!r} names")


def wrong(queries: Mapping[str, str], metrics: Mapping[str, frozenset[str]]) -> Iterable[str]:
    """What is wrong with them, in words."""
    for place, query in queries.items():
        try:
            found = named_in(query)
        except ValueError as error:
            yield f"{place}: {error}: {query}"
            continue
        if not found:
            yield f"{place} names no metric: {query}"
        for metric, labels in found:
            if metric not in metrics:
                yield f"{place}: nobody has {metric}"
            elif not labels <= metrics[metric]:
                yield f"{place}: {metric} has no {', '.join(sorted(labels - metrics[metric]))}"
