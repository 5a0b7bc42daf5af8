"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.cli import main as main_module

Ended = Callable[[list[str]], tuple[int, str]]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Runs a command as the shell does: its status, and what it says on either stream."""

    def run(arguments: list[str]) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["anabranch", *arguments])
        with pytest.raises(SystemExit) as how:
            main_module.main()
        return int(str(how.value.code or 0)), "".join(capsys.readouterr())

    return run
