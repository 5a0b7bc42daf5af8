"""What holds for each run in containers: it begins by removing what dead runs have left, and
SIGTERM ends it as Ctrl-C does, with all that it has started removed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from faults.leftovers import remove_leftovers


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker engine without leftovers."""
    remove_leftovers()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)
