"""What is printed and saved."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import msgspec

from bench.figure import Figure, Measured

mpl.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).parent / "results"

Row = tuple[Figure, Measured | str]  # a str: why there is no figure


def show(row: Row) -> str:
    """One line for people."""
    figure, found = row
    if isinstance(found, str):
        return f"{figure.name:16} NOT MEASURED: {found}"
    value = f"{_number(found.value)} {found.unit}"
    limit = "" if found.limit is None else f" = {found.ratio:.2f} x {_number(found.limit)}"
    if found.floor is not None:
        limit += f", {found.value / found.floor:.2f} x a floor of {_number(found.floor)}"
    word = "met" if found.met else f"MISSED by {found.missed_by:.2f} x"
    return f"{figure.name:16} {value:>20}{limit:20} goal: {figure.goal}: {word}"


def table(rows: Sequence[Row]) -> str:
    """All figures with goals and peers."""
    heads = ("FIGURE", "MEASURED", "LIMIT", "RATIO", "GOAL", "PEER", "")
    lines = [heads]
    for figure, found in rows:
        if isinstance(found, str):
            lines.append((figure.what, "-", "-", "-", figure.goal, figure.peer, "not measured"))
            continue
        limit = "-" if found.limit is None else f"{_number(found.limit)} {found.unit}"
        ratio = "-" if found.ratio is None else f"{found.ratio:.2f}"
        if found.floor is not None:
            limit += f", floor {_number(found.floor)} {found.unit}"
            ratio += f", {found.value / found.floor:.2f}"
        word = "met" if found.met else f"missed by {found.missed_by:.2f} x"
        value = f"{_number(found.value)} {found.unit}"
        lines.append((figure.what, value, limit, ratio, figure.goal, figure.peer, word))
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save(rows: Sequence[Row], quick: bool, brokers: int) -> Path:
    """Writes JSON and a plot; the JSON's path."""
    RESULTS.mkdir(exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S")
    content: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "quick": quick,
        "brokers": brokers,
        "machine": {
            "processors": os.cpu_count(),
            "processor": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "load_average": os.getloadavg(),
        },
        "figures": [_entry(row) for row in rows],
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    _plot(rows, RESULTS / f"{name}.png")
    return path


def _entry(row: Row) -> dict[str, Any]:
    figure, found = row
    entry: dict[str, Any] = {
        "name": figure.name,
        "what": figure.what,
        "goal_in_words": figure.goal,
        "peer": figure.peer,
        "on_one_broker": figure.on_one,
    }
    if isinstance(found, str):
        return entry | {"not_measured": found}
    measured: dict[str, Any] = msgspec.to_builtins(found)
    return entry | measured | {"ratio": found.ratio, "met": found.met}


def _plot(rows: Sequence[Row], path: Path) -> None:
    """How many times worse than its goal each figure is; left of the line is good."""
    shown = [(figure, found) for figure, found in rows if isinstance(found, Measured)]
    if not shown:
        return
    height = 1.2 + 0.42 * len(shown)
    drawing, axes = plt.subplots(figsize=(10, height), layout="constrained")
    names = [figure.what for figure, _ in shown]
    values = [found.missed_by for _, found in shown]
    colours = ["#2a7f62" if found.met else "#b5472f" for _, found in shown]
    bars = axes.barh(names, values, color=colours)
    texts = [f"{_number(found.value)} {found.unit}" for _, found in shown]
    axes.bar_label(bars, texts, padding=4, fontsize=8)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("multiple of the goal (below 1: better than the goal)")
    axes.margins(x=0.2)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)
