"""The lock on a data directory, and the supervisor that passes it on; without Kafka."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from anabranch.devkit.kafka import supervisor
from anabranch.devkit.kafka.embedded import KafkaStartError, exclusive

_ANOTHER_KAFKA = "Another Kafka runs on this data directory: stop it, or name another directory."
# Says whether it has the descriptor, and stays.
_COMMAND = """
import os, sys, time
os.fstat(int(sys.argv[1]))
print("has it", flush=True)
time.sleep(600)
"""


def _is_refused(folder: Path) -> bool:
    try:
        with exclusive(folder):
            return False
    except KafkaStartError as error:
        if str(error) != f"{_ANOTHER_KAFKA} Data directory: {folder}":
            raise
        return True


def test_one_holds_it_until_it_is_done_or_fails(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        assert _is_refused(tmp_path)
        # A refusal takes nothing from the one who holds it.
        assert _is_refused(tmp_path)
    assert not _is_refused(tmp_path)

    with pytest.raises(ZeroDivisionError), exclusive(tmp_path):
        raise ZeroDivisionError
    assert not _is_refused(tmp_path)


@contextmanager
def _supervised(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A supervisor and the input it watches; it and its command have inherited the lock."""
    python = [sys.executable, "-I", "-S"]
    with exclusive(folder) as lock:
        process = subprocess.Popen(
            [*python, supervisor.__file__, *python, "-c", _COMMAND, str(lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock,),
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        # The command could have it from the supervisor only.
        assert process.stdout.readline() == b"has it\n"
        yield process, process.stdin


def test_supervisor_and_command_hold_it_after_us_and_not_after_their_end(tmp_path: Path) -> None:
    with _supervised(tmp_path) as (process, orders):
        assert _is_refused(tmp_path)

        orders.write(b"T")
        orders.flush()
        process.wait()

        assert not _is_refused(tmp_path)


def test_it_is_held_until_a_supervisor_without_its_parent_has_ended_the_command(
    tmp_path: Path,
) -> None:
    with _supervised(tmp_path) as (process, orders):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        orders.close()
        refused = _is_refused(tmp_path)
        os.kill(process.pid, signal.SIGCONT)
        process.wait()

        assert refused
        assert not _is_refused(tmp_path)
