"""Standard streams that are closed, full, or that nobody reads."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from anabranch.cli.topics import produce as produce_module
from support.answering import node
from support.nobody import nobody
from support.processes import COMMAND
from support.waiting import WAIT_S

TOPIC = "public/default/orders"
LAYOUT = {"epoch": 0, "nextSegmentId": 0, "segments": {}, "properties": {}}


def run(
    *arguments: str, shell: str = "", stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """The command to its end; `shell`: what a shell does to its streams."""
    words = [*COMMAND, *arguments]
    if shell:
        words = ["sh", "-c", f'exec "$@" {shell}', "sh", *words]
    return subprocess.run(
        words, stdout=stdout, stderr=stderr, text=True, timeout=WAIT_S, check=False
    )


def unread() -> int:
    """The end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("arguments", [("topics", "split", "--help"), ("--version",)])
def test_nobody_needs_to_read_what_is_printed(arguments: tuple[str, ...]) -> None:
    write = unread()
    try:
        found = run(*arguments, stdout=write)
    finally:
        os.close(write)
    assert (found.returncode, found.stderr) == (0, "")


def test_nobody_needs_to_read_why_it_failed() -> None:
    write = unread()
    try:
        found = run("lookup", "orders", stdout=write, stderr=write)
    finally:
        os.close(write)
    assert found.returncode == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_is_closed_is_as_good_as_the_null_device(closed: str) -> None:
    with node(lambda _verb, _path: (200, {}, LAYOUT)) as asked:
        found = run("topics", "show", TOPIC, "--url", asked, shell=closed)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("" if ">&-" in closed.split() else f"topic://{TOPIC}: ")


def test_lines_from_an_input_that_is_closed_are_none() -> None:
    with nobody() as address:
        found = run("topics", "produce", TOPIC, "--url", address, shell="<&-")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert f"no node answers at http://{address}" in found.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_a_full_disk_is_told_in_a_line() -> None:
    with Path("/dev/full").open("w") as full:
        found = run("--version", stdout=full.fileno())
    assert (found.returncode, found.stderr) == (2, "anabranch: No space left on device\n")


def test_an_input_that_cannot_be_read_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)

    class Folder:
        def fileno(self) -> int:
            return folder

    async def read() -> None:
        async for _ in produce_module._chunks(Folder(), asyncio.Event()):  # type: ignore[arg-type]
            pass

    try:
        with pytest.raises(IsADirectoryError):
            asyncio.run(asyncio.wait_for(read(), WAIT_S))
    finally:
        os.close(folder)
