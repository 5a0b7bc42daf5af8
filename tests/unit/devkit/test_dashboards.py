"""Dashboards and alerts ask for what nodes and audits show, and the files are as generated."""

from __future__ import annotations

import json
import re

import pytest

from anabranch.devkit.dashboards import DASHBOARDS as MODELS
from anabranch.devkit.dashboards.grafana import Dashboard
from support import queries


def test_the_files_are_those_that_make_dashboards_writes() -> None:
    """If this fails: `make dashboards`."""
    written = {file.name: file.read_text("utf-8") for file in queries.DASHBOARDS.glob("*.json")}
    assert written == {f"{each.name}.json": each.json() for each in MODELS}


def test_each_query_of_a_dashboard_names_metrics_and_labels_that_there_are() -> None:
    found = queries.of_dashboards()
    assert len(found) > 60
    assert list(queries.wrong(found, queries.exported())) == []


def test_each_query_of_an_alert_names_metrics_and_labels_that_there_are() -> None:
    found = queries.of_alerts()
    assert len(found) > 30
    assert list(queries.wrong(found, queries.exported())) == []


def test_every_metric_is_on_a_dashboard() -> None:
    shown = {
        each.metric
        for query in queries.of_dashboards().values()
        for each in queries.named_in(query)
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in shown}
    known = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in queries.exported()}
    beside = {
        "anabranch_load_segments",
        "anabranch_load_records",
        "anabranch_audit_interval_seconds",
    }
    assert known - families == beside


@pytest.mark.parametrize("dashboard", MODELS, ids=lambda each: each.name)
def test_a_legend_names_labels_that_its_lines_have(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            named = set(re.findall(r"{{(\w+)}}", query.legend))
            kept = re.findall(r"by \(([^)]*)\)", query.promql)
            of_aggregate = {label.strip() for group in kept for label in group.split(",")}
            plain = query.promql.replace("$__rate_interval", "5m")
            of_metric = set.intersection(
                *(set(queries.exported()[each.metric]) for each in queries.named_in(plain))
            )
            assert named <= (of_aggregate if kept else of_metric), panel.title


def test_panels_lie_beside_each_other() -> None:
    for file in queries.DASHBOARDS.glob("*.json"):
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(file.read_text("utf-8"))["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            assert place["x"] + place["w"] <= 24
            taken |= cells


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sum(anabranch_serving", "unclosed left parenthesis"),
        ("sum(anabranch_servin)", "nobody has anabranch_servin"),
        ("sum by (topic) (anabranch_serving)", "anabranch_serving has no topic"),
        ('anabranch_serving{verdict="x"}', "anabranch_serving has no verdict"),
        ("anabranch_serving * on (topic) up", "up has no topic"),
        ("1 + 1", "names no metric"),
    ],
)
def test_a_query_that_asks_for_what_there_is_not_is_found(query: str, told: str) -> None:
    assert any(told in each for each in queries.wrong({"here": query}, queries.exported()))
