"""How the commands over Spark end when they are told to."""

from __future__ import annotations

import signal
from typing import Final

import pytest

from support.processes import run_python

_COMMAND: Final = """
import logging, os, signal, sys, time
from anabranch.cli.spark.jobs import tidy_when_terminated
logging.basicConfig()
signal.signal(signal.SIGINT, signal.default_int_handler)  # this test may run in the background
tidy_when_terminated()
try:
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
except KeyboardInterrupt:
    logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down")
    sys.exit(130)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_what_the_bridge_to_spark_logs_of_an_interruption_is_not_shown(how: signal.Signals) -> None:
    ended = run_python(_COMMAND, str(int(how)))
    assert (ended.returncode, ended.stderr) == (130, "")


_FINALIZED: Final = """
import os, signal, time, weakref
from anabranch.cli.spark.jobs import tidy_when_terminated

class Proxy:
    pass

tidy_when_terminated()
proxy = Proxy()
gone = weakref.ref(proxy, lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.01)))
try:
    del proxy
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_that_comes_in_a_finalizer_is_not_lost() -> None:
    ended = run_python(_FINALIZED)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")
