"""How often Python's collector looks through everything that a node has."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_ROUNDS: Final = """
import gc
from anabranch.broker.collector import collect_rarely
if {told}:
    collect_rarely()
topics = [[number] for number in range({topics})]
gc.collect()
before = gc.get_stats()[2]["collections"]
for _ in range({rounds}):  # each makes something for every topic, which the next one replaces
    made = [(topic, [topic]) for topic in topics]
print(gc.get_stats()[2]["collections"] - before)
"""


def _looks(*, told: bool) -> int:
    """Looks through everything in some rounds over thousands of topics."""
    code = _ROUNDS.format(told=told, topics=10_000, rounds=30)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_rounds_over_thousands_of_topics_have_nothing_looked_through_as_a_whole() -> None:
    assert _looks(told=True) == 0
    assert _looks(told=False) > 0
