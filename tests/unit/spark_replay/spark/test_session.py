"""How a session takes a Ctrl-C."""

import logging
import signal
import subprocess

import pytest

from anabranch.spark_replay.spark import session


def test_nobody_hears_of_what_cannot_be_told_to_a_spark_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever handler took the Ctrl-C: Spark's own one has it for a moment."""
    bridge = logging.getLogger("py4j")
    before = bridge.level
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(session, "_launched", [process])
    try:
        session.kill_jvm()
        assert process.returncode == -signal.SIGKILL
        logging.getLogger("py4j.clientserver").error("Exception while sending command.")
        assert caplog.records == []
    finally:
        process.kill()
        process.wait()
        bridge.setLevel(before)
