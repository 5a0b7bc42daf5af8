"""How a session takes a Ctrl-C while Spark starts, and behind it."""

import logging
import signal
import subprocess
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from anabranch.spark_replay.spark.session import _interrupts_noted, kill_jvm


def start_that_ends_by(number: signal.Signals) -> None:
    with _interrupts_noted():
        signal.raise_signal(number)
        raise RuntimeError("the gateway exited before it told its port")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_hears_of_that_and_not_that_spark_did_not_start(number: signal.Signals) -> None:
    """A signal goes to a whole process group, or control group: Spark's process ends by it, too."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_that_ends_by(number)
    finally:
        signal.signal(number, before)


def test_nobody_hears_of_what_cannot_be_told_to_a_spark_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever handler took the Ctrl-C: Spark's own one has it for a moment."""
    bridge = logging.getLogger("py4j")
    before = bridge.level
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    try:
        kill_jvm()
        assert process.returncode == -signal.SIGKILL
        logging.getLogger("py4j.clientserver").error("Exception while sending command.")
        assert caplog.records == []
    finally:
        process.kill()
        process.wait()
        bridge.setLevel(before)
