"""What a process keeps of memory: large blocks, and what the collector looks through."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

# As payloads of lists come and go: made of large parts, with small things between them that stay.
_PROGRAM: Final = """
import sys
from anabranch.broker.node.process import give_back_large_blocks

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

told = give_back_large_blocks()
stays = []
def make():
    parts = [b"x" * 230_000 for _ in range(40)]
    whole = b"".join(parts)
    stays.append(b"y" * 5_000)
    return whole

before = resident_bytes()
for _ in range(10):
    make()
print(told, resident_bytes() - before)
"""


def _run(**environment: str) -> tuple[bool, int]:
    """Whether the allocator was told, and how much the process has grown."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    told, grown = ran.stdout.split()
    return told == "True", int(grown)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_of_large_blocks_nothing_stays() -> None:
    told, grown = _run()
    assert told
    assert grown < 2 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_what_the_environment_says_stays() -> None:
    told, _ = _run(MALLOC_MMAP_THRESHOLD_="1000000")
    assert not told


# --- how often Python's collector looks through everything that a node has ------------------------


_ROUNDS: Final = """
import gc
from anabranch.broker.node.process import collect_rarely
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
