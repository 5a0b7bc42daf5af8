"""The demo's narrator: the account at the end has each step and the whole."""

from __future__ import annotations

import pytest

from anabranch.devkit.demo.narrator import Narrator


def test_steps_are_numbered_and_the_end_has_their_times_and_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    narrator = Narrator()
    narrator.step("start", "A cluster")
    narrator.say("it serves")
    narrator.show(["one", "two"])
    narrator.step("split", "A topic splits")
    narrator.end("all is well")
    assert capsys.readouterr().out.splitlines() == [
        *("", "1. A cluster", ""),
        *("   0.0 s  it serves", "          one", "          two"),
        *("", "2. A topic splits", ""),
        *("", "The demo took 0 s: start 0 s, split 0 s.", "Result: all is well"),
    ]
