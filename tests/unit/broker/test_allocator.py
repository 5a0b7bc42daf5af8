"""What a process keeps of large blocks that it has given back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

# As payloads of lists come and go: made of large parts, with small things between them that stay.
_PROGRAM: Final = """
import sys
from anabranch.broker.allocator import give_back_large_blocks

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
