"""A dashboard as Grafana reads it: panels in rows of 24 columns, one data source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from string import ascii_uppercase
from typing import Any, Final

_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_SCHEMA: Final = 39  # Grafana 11's; newer ones upgrade it when they read it


@unique
class PanelShape(Enum):
    """How a panel shows its queries: Grafana's type, columns and rows."""

    NUMBER = ("stat", 4, 4)
    LINES = ("timeseries", 12, 8)
    STATES = ("state-timeline", 12, 8)
    TABLE = ("table", 24, 8)


@unique
class PanelUnit(Enum):
    """What a panel's numbers count, in Grafana's words."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    PER_SECOND = "cps"
    BYTES_PER_SECOND = "Bps"
    SHARE = "percentunit"
    MOMENT = "dateTimeAsIso"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and what its lines are called, with `{{label}}` for a label's value."""

    promql: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `meaning` is what a reader sees who asks what it shows."""

    title: str
    shape: PanelShape
    unit: PanelUnit
    meaning: str
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Panels in the order in which they are read. `of_topics`: the reader chooses topics."""

    name: str
    title: str
    of_topics: bool
    panels: tuple[Panel, ...]

    def json(self) -> str:
        """Returns the file that Grafana is provisioned with."""
        model = {
            "uid": f"anabranch-{self.name}",
            "title": f"Anabranch: {self.title}",
            "tags": ["anabranch"],
            "schemaVersion": _SCHEMA,
            "editable": False,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "templating": {"list": [_CHOICE_OF_TOPICS] if self.of_topics else []},
            "panels": list(_placed(self.panels)),
        }
        return json.dumps(model, indent=2) + "\n"


_CHOICE_OF_TOPICS: Final = {
    "name": "topic",
    "label": "Topic",
    "type": "query",
    "datasource": _SOURCE,
    "query": "label_values(pulsar_scalable_topic_active_segments, topic)",
    "refresh": 2,  # whenever the time changes
    "includeAll": True,
    "multi": True,
    "allValue": ".+",
    "current": {"text": "All", "value": "$__all"},
}

RATE_INTERVAL: Final = "[$__rate_interval]"  # a few scrapes, by Grafana


def number(title: str, promql: str, meaning: str, unit: PanelUnit = PanelUnit.COUNT) -> Panel:
    """Makes a panel of one number, as it is now."""
    return Panel(title, PanelShape.NUMBER, unit, meaning, (Query(promql),))


def lines(title: str, unit: PanelUnit, meaning: str, *queries: Query) -> Panel:
    """Makes a panel of lines over time."""
    return Panel(title, PanelShape.LINES, unit, meaning, queries)


def quantiles(title: str, histogram: str, meaning: str) -> Panel:
    """Makes a panel of how long something took: the median, and what is exceeded seldom."""
    rate = f"sum by (le) (rate({histogram}_bucket{RATE_INTERVAL}))"
    queries = [
        Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f}")
        for share in (0.5, 0.9, 0.99)
    ]
    return lines(title, PanelUnit.SECONDS, meaning, *queries)


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Fills rows from the left; a panel that does not fit begins the next one."""
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        kind, columns, rows = panel.shape.value
        if x + columns > _COLUMNS:
            x, y, height = 0, y + height, 0
        place = {"x": x, "y": y, "w": columns, "h": rows}
        x, height = x + columns, max(height, rows)
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.meaning,
            "type": kind,
            "gridPos": place,
            "datasource": _SOURCE,
            "fieldConfig": {"defaults": {"unit": panel.unit.value}, "overrides": []},
            "targets": list(_targets(panel)),
        }


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    now = panel.shape in (PanelShape.NUMBER, PanelShape.TABLE)
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        yield {
            "refId": letter,
            "datasource": _SOURCE,
            "expr": query.promql,
            "legendFormat": query.legend,
            "instant": now,
            "range": not now,
            **({"format": "table"} if panel.shape is PanelShape.TABLE else {}),
        }
