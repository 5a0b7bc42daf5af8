"""The listing of a run shows what failed, what was done, and the lines of each violation."""

from __future__ import annotations

import re
from pathlib import Path

from faults.checker import violations
from faults.history import History, read
from faults.timeline import write


def test_what_failed_and_the_lines_of_a_lost_message_are_listed(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.mkdir()
    with History(history, "producers-1") as one, History(tmp_path, "faults") as faults:
        one.say("send", key="a", number=0)
        one.say("acknowledged", key="a", number=0, place=[0, 0, 0])
        one.say("operation", kind="split", of=[0])
        one.say("not_operated", why="Kafka is away")
        one.say("read")
        faults.say("begin", fault=1, kind="KILL", target="node-1", why="seed")
        faults.say("end", fault=1, kind="KILL", target="node-1", why="seed")
    lines = read(history, tmp_path / "faults.jsonl")
    text = write(tmp_path, "seed 7", lines, violations(lines)).read_text()
    for word in ("seed 7", '"KILL"', "Kafka is away", "lost: "):
        assert word in text
    _, _, shown = text.partition("lost: ")
    assert re.search(r"acknowledged +\{", shown)


def test_a_run_in_which_nothing_happened_is_listed(tmp_path: Path) -> None:
    assert "did not come to its end" in write(tmp_path, "none", [], violations([])).read_text()
