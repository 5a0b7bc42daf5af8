"""docker/base.sh leaves nothing of the base on this machine, whatever ends it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from support.metrics_page import ROOT

_SCRIPT: Final = ROOT / "docker" / "base.sh"


@pytest.mark.parametrize(
    ("then", "status"),
    [("true", 0), ("exit 7", 7), ("kill -TERM $PPID", 130)],
    ids=["done", "failed", "interrupted"],
)
def test_its_folder_is_gone(tmp_path: Path, then: str, status: int) -> None:
    tools, temporary = tmp_path / "tools", tmp_path / "temporary"
    tools.mkdir()
    temporary.mkdir()
    made = tmp_path / "made"
    for name, what in {
        "debootstrap": f'touch "$3/file"; ls "$3" > {made}; {then}',
        "docker": "cat > /dev/null",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{what}\n")
        (tools / name).chmod(0o755)
    done = subprocess.run(
        [str(_SCRIPT), "base:test"],
        env={"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert made.read_text() == "file\n"
    assert list(temporary.iterdir()) == []
