"""docs/events.md names every event that a node logs, and no other."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from anabranch.broker.metrics.registry import record_kind
from anabranch.channel.load.soft_state import SoftStateTopic
from anabranch.core.entities.unit import Move

ROOT = Path(__file__).parents[3]
_PARTS = ("broker", "proxy", "channel")
_OF_THE_WIRE = (
    "server/server.py",
    "server/gate.py",
    "supervised.py",
)  # the rest is a client's, too
_LEVELS = ("debug", "info", "warning", "error", "log")
_EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
_ROW = re.compile(r"\| `([a-z_]+\.[a-zA-Z_]+)` \| (.+) \|")


def documented() -> dict[str, str]:
    """Every event of the page, with its meaning."""
    rows = _ROW.findall((ROOT / "docs" / "events.md").read_text("utf-8"))
    found = dict(rows)
    assert len(found) == len(rows), "an event stands twice"
    return found


def _logged(path: Path) -> Iterator[str]:
    """The first argument of each call of a logger, where it is an event's name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        event = node.args[0]
        text = event.value if isinstance(event, ast.Constant) else None
        if name in _LEVELS and isinstance(text, str) and _EVENT.fullmatch(text):
            yield text


def _named_otherwise() -> set[str]:
    """Events whose names are put together when they are logged."""
    assert record_kind(None) == "unreadable"
    assert Move.ASSIGN.name.lower() in {move.name.lower() for move in Move}
    soft = {"load", "broker_load", "top_bundles"}
    assert SoftStateTopic.__abstractmethods__
    lines = {f"{event}.not_written" for event in soft} | {f"{event}.newer" for event in soft}
    return lines | {"decision.KIND", "heartbeat.newer"}


def test_the_page_has_each_event_of_a_node_and_no_other() -> None:
    paths = [
        *(path for part in _PARTS for path in (ROOT / part / "anabranch" / part).rglob("*.py")),
        *(ROOT / "wire" / "anabranch" / "wire" / name for name in _OF_THE_WIRE),
    ]
    logged = {event for path in paths for event in _logged(path)}
    assert len(logged) > 40
    wanted = logged | _named_otherwise()
    assert wanted - documented().keys() == set(), "put these into docs/events.md"
    assert documented().keys() - wanted == set(), "nobody logs these"


def test_the_page_has_each_kind_of_decision() -> None:
    text = (ROOT / "docs" / "events.md").read_text("utf-8")
    kinds = re.findall(r'f"([a-z]+_)\{', inspect.getsource(record_kind))
    assert len(kinds) > 5
    assert [kind for kind in (*kinds, "cluster_settings") if f"`{kind}`" not in text] == []
