"""A log, and a view that has read nothing of it yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.projections.view import View
from support.history import History, mixed


@pytest.fixture
def log() -> History:
    return mixed()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    with View.open(tmp_path / "view") as opened:
        yield opened
