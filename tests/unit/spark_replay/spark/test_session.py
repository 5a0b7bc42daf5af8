"""How a session takes a Ctrl-C while Spark starts."""

import signal

import pytest

from anabranch.spark_replay.spark.session import _interrupts_noted


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
