"""Scenarios that can be read: the rules make of each step what is written below it.

After a change of the rules, `SCENARIOS=rewrite` makes the files anew; then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.balance_scene import Shedding
from support.scenarios import Bundles, HandOvers, Layouts, Stage, replayed

FOLDER = Path(__file__).parents[2] / "testdata"
STAGES: dict[str, Callable[[], Stage]] = {
    "balance": Shedding,
    "bundles": Bundles,
    "layouts": Layouts,
    "hand-overs": HandOvers,
}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/*.txt")), ids=lambda file: file.stem)
def test_the_rules_make_of_a_scenario_what_it_says(file: Path) -> None:
    written = file.read_text()
    told = replayed(written, STAGES[file.parent.name]())
    if os.environ.get("SCENARIOS") == "rewrite":
        file.write_text(told)
    assert told == written
