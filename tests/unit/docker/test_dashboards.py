"""Dashboards and alerts ask for what nodes and audits show, and Grafana can read the dashboards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from support import queries

_FILES: Final = sorted(queries.DASHBOARDS.glob("*.json"))
_PROVISIONING: Final = queries.DASHBOARDS.parent / "provisioning"
# Whether a panel of this type shows its queries as they are now.
_IS_NOW: Final = {"stat": True, "table": True, "timeseries": False, "state-timeline": False}
_CHOICE: Final = re.compile(r"\$(?!__)(\w+)")

each_file = pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


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
        "anabranch_audit_interval_seconds",
    }
    assert known - families == beside


@each_file
def test_a_legend_names_labels_that_its_lines_have(file: Path) -> None:
    for panel in _read(file)["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            of_aggregate = {label.strip() for group in kept for label in group.split(",")}
            plain = target["expr"].replace("$__rate_interval", "5m")
            of_metric = set.intersection(
                *(set(queries.exported()[each.metric]) for each in queries.named_in(plain))
            )
            assert named <= (of_aggregate if kept else of_metric), panel["title"]


@each_file
def test_a_dashboard_is_known_by_its_file_and_a_panel_by_its_number(file: Path) -> None:
    model = _read(file)
    assert model["uid"] == f"anabranch-{file.stem}"
    assert model["title"].startswith("Anabranch: ")
    panels = model["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert all(panel["description"] for panel in panels)


@each_file
def test_each_query_goes_to_the_data_source_that_is_provisioned(file: Path) -> None:
    text = (_PROVISIONING / "datasources" / "prometheus.yml").read_text("utf-8")
    (given,) = yaml.safe_load(text)["datasources"]
    source = {"type": given["type"], "uid": given["uid"]}
    model = _read(file)
    targets = [target for panel in model["panels"] for target in panel["targets"]]
    for each in (*model["templating"]["list"], *model["panels"], *targets):
        assert each["datasource"] == source


@each_file
def test_a_query_is_asked_as_its_panel_shows_it(file: Path) -> None:
    model = _read(file)
    chosen = {choice["name"] for choice in model["templating"]["list"]}
    for panel in model["panels"]:
        is_now = _IS_NOW[panel["type"]]
        targets = panel["targets"]
        assert len({target["refId"] for target in targets}) == len(targets) > 0
        for target in targets:
            assert (target["instant"], target["range"]) == (is_now, not is_now), panel["title"]
            assert target.get("format") == ("table" if panel["type"] == "table" else None)
            assert set(_CHOICE.findall(target["expr"])) <= chosen, panel["title"]


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
