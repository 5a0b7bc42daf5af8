"""The documentation shows the machines as they are."""

from __future__ import annotations

from pathlib import Path

from anabranch.core.machines import mermaid
from anabranch.core.topics import TOPIC_ARROWS, TopicMove
from anabranch.core.units import ARROWS, LEADERSHIP_ARROWS, Move

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "state-machine.md").read_text()


def test_the_pictures_are_drawn_from_the_tables() -> None:
    for picture in (mermaid(ARROWS), mermaid(LEADERSHIP_ARROWS), mermaid(TOPIC_ARROWS)):
        assert f"```mermaid\n{picture}```\n" in PAGE, f"paste this:\n{picture}"


def test_the_page_explains_every_move() -> None:
    for move in (*Move, *TopicMove):
        assert move.name in PAGE
