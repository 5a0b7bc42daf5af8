"""The documentation shows the machine as it is."""

from __future__ import annotations

from pathlib import Path

from anabranch.core.units import ARROWS, LEADERSHIP_ARROWS, Move, mermaid

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "state-machine.md").read_text()


def test_the_pictures_are_drawn_from_the_table() -> None:
    for arrows in (ARROWS, LEADERSHIP_ARROWS):
        assert f"```mermaid\n{mermaid(arrows)}```\n" in PAGE, f"paste this:\n{mermaid(arrows)}"


def test_the_page_explains_every_move() -> None:
    for move in Move:
        assert move.name in PAGE
