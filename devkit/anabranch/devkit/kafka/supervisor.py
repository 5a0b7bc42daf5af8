"""Runs one command and ends it when the process that started us is gone.

Run it by its path, with the standard library alone: `python -I -S supervisor.py COMMAND...`. The
parent holds the other end of our standard input and writes `T` to end the command with SIGTERM, or
`K` to kill it. The end of that input means that the parent is gone, even by a crash: the command
gets SIGTERM and, if that is not enough, SIGKILL. We exit with the command's status.

Descriptors that the parent passed on to us are the command's as well. One of them is the lock on
its data. So the lock is held until both of us have ended, even after the parent is gone.

Tried and dropped: PR_SET_PDEATHSIG in the command alone. It is Linux only, and its signal comes
when the *thread* that started the command ends, not the process. Here it guards the one case left:
this supervisor itself is killed. It has a single thread.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from typing import Final

_GRACE_SECONDS: Final = 10.0
# The interval of looking if the parent is still ours: a child that the parent forked without an
# exec holds the parent's end of our input open.
_PARENT_CHECK_SECONDS: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1
_INPUT: Final = 0
_SIGNALS: Final = {ord("T"): signal.SIGTERM, ord("K"): signal.SIGKILL}


def supervise(command: list[str]) -> int:
    """Runs the command until it ends or the parent does. Returns its exit status."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    # The parent decides: a Ctrl-C is for it, and a SIGTERM for us is one for the command.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = _start(command)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: child.terminate())
    parent = os.getppid()
    watched = [_INPUT, wake_read]
    kill_at: float | None = None
    while child.poll() is None:
        ready, _, _ = select.select(watched, [], [], _PARENT_CHECK_SECONDS)
        if wake_read in ready:
            os.read(wake_read, 4096)
        gone = os.getppid() != parent
        if _INPUT in ready:
            orders = os.read(_INPUT, 64)
            for order in orders:
                child.send_signal(_SIGNALS[order])
            gone = gone or not orders
        if gone and kill_at is None:
            child.terminate()
            kill_at = time.monotonic() + _GRACE_SECONDS
            watched = [wake_read]
        if kill_at is not None and time.monotonic() >= kill_at:
            child.kill()
    return child.returncode


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def die_with_supervisor() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        # Python closes its own descriptors, such as the pipe to wake us, nevertheless.
        close_fds=False,
        preexec_fn=die_with_supervisor,
    )


if __name__ == "__main__":
    status = supervise(sys.argv[1:])
    sys.exit(status if status >= 0 else 128 - status)
