"""The page of a run shows all that a history has, and needs nothing beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults.checker import violations
from faults.history import History, read
from faults.pauses import Pause, pauses
from faults.timeline import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run in which a message was lost while a node was killed, and a bundle moved."""
    history = tmp_path / "history"
    history.mkdir()
    with History(history, "producers-1") as one, History(tmp_path, "faults") as faults:
        one.say("opened", subscription="s", kind="stream", consumer="<one>")
        one.say("send", key="a", number=0)
        one.say("acknowledged", key="a", number=0, place=[0, 0, 0])
        one.say("received", subscription="s", consumer="<one>", key="a", number=0, place=[0, 0, 0])
        one.say("operation", kind="split", of=[0])
        bundle = ("0x00000000_0xffffffff", 1, "OWNED", "node-1")
        one.say("ownership", node="node-1", asked=0.0, stale=False, bundles=[bundle])
        one.say(
            "controlled", node="node-1", asked=0.0, stale=False, topic="topic://public/default/t"
        )
        one.say("not_operated", why="Kafka is away")
        one.say("consumer_failed", consumer="<one>", why="no node answers")
        one.say("read")
        faults.say("begin", fault=1, kind="KILL", target="node-1", why="seed")
        faults.say("end", fault=1, kind="KILL", target="node-1", why="seed")
    return tmp_path


def test_all_that_happened_is_on_the_page(folder: Path) -> None:
    lines = read(folder / "history", folder / "faults.jsonl")
    page = write(folder, "seed 7", lines, violations(lines)).read_text()
    for word in (
        "seed 7",
        "node-1 kill",
        "Kafka is away",
        "node-1 answered as the controller",
        "OWNED",
    ):
        assert word in page
    assert "A promise was broken" in page
    assert page.count('href="#v0"') == page.count("<svg") == 5
    assert 'id="v0"' in page
    assert re.search(r"acknowledged +\{", page), "the lines of what was lost"


def test_it_needs_no_other_file_and_shows_words_as_they_are(folder: Path) -> None:
    lines = read(folder / "history", folder / "faults.jsonl")
    page = write(folder, "<seed>", lines, violations(lines)).read_text()
    assert re.findall(r'(?:src|href)="(?!#)|url\(|@import|<script|<link', page) == []
    assert "<seed>" not in page
    assert "<one>" not in page


def test_a_run_in_which_nothing_happened_has_a_page(tmp_path: Path) -> None:
    assert "did not come to its end" in write(tmp_path, "none", [], violations([])).read_text()


def test_the_longest_pause_of_each_key_and_bucket_is_found() -> None:
    def receipt(at: float, number: int) -> dict[str, object]:
        return {"at": at, "what": "received", "key": "a", "number": number, "subscription": "s"}

    def sent(at: float, number: int) -> dict[str, object]:
        place = [3, 1, number]
        return {"at": at, "what": "acknowledged", "key": "a", "number": number, "place": place}

    lines = [sent(1, 0), receipt(2, 0), sent(10, 1), sent(11, 2), receipt(15, 1), receipt(18, 2)]
    assert pauses([*lines, receipt(30, 0)]) == [
        Pause("not acknowledged", "a", 1, 10),
        Pause("unread by s", "3/1", 10, 15),
    ]
