"""A Ctrl-C ends a command, whatever the command does about it."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from subprocess import PIPE

import pytest

from support.processes import CTRL_C_S_MAX, await_gone
from support.waiting import WAIT_S

_DEAF = """
import contextlib, subprocess, sys, time
from anabranch.cli import main
def cli(**_):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(child.pid, flush=True)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(600)
main.cli = cli
main.main()
"""
_ON_A_LOOP = """
import asyncio, subprocess
from anabranch.cli import main
from anabranch.cli.shared.stopping import asked_to_stop
async def serve():
    asked_to_stop()
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(child.pid, flush=True)
    await asyncio.to_thread(__import__("time").sleep, 600)
main.cli = lambda **_: asyncio.run(serve())
main.main()
"""
_ENDS_WELL = _DEAF.replace("while True:", "if True:")
_TURNS_IT = _ENDS_WELL.replace("main.cli = cli", "    raise TypeError\nmain.cli = cli")


@pytest.mark.parametrize("program", [_DEAF, _ON_A_LOOP, _ENDS_WELL, _TURNS_IT], ids=range(4))
def test_a_ctrl_c_ends_a_command_and_its_children_with_status_130(program: str) -> None:
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests may ignore it
    command = subprocess.Popen(
        [sys.executable, "-c", program], stdout=PIPE, stderr=PIPE, text=True, preexec_fn=heard
    )
    try:
        assert command.stdout is not None
        child = int(command.stdout.readline())
        command.send_signal(signal.SIGINT)
        assert command.wait(CTRL_C_S_MAX) == 130
        await_gone([child])
    finally:
        command.kill()
        _, said = command.communicate(timeout=WAIT_S)
    assert "fault" not in said
