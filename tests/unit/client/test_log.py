"""What the SDK logs goes where its application's logging says, and nowhere else."""

from __future__ import annotations

import io
import json
import logging

import pytest

from anabranch.broker.logging import configure_logging
from anabranch.broker.settings import load_settings
from anabranch.wire.logging import get_logger
from support.processes import run_python

_SPEAKS = """
import logging
from anabranch.client._topics import watch as layout_watch
from anabranch.client._producer import dispatcher
from anabranch.client._consumer import session
for module in (layout_watch, dispatcher, session):
    say_by = module._logger
    for say in (say_by.debug, say_by.info, say_by.warning, say_by.error):
        say("something.happened", topic="a/b/c")
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
session._logger.bind(consumer="one").info("something.happened", why="two words")
session._logger.debug("something.small")
"""


def test_an_application_hears_nothing_before_it_configures_logging_and_whole_lines_after() -> None:
    done = run_python(_SPEAKS)
    assert done.stdout == ""
    assert done.stderr == (
        'anabranch.client._consumer.session INFO something.happened consumer=one why="two words"\n'
    )


def test_a_record_carries_the_event_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    fault = ValueError("x")
    with caplog.at_level(logging.WARNING, "anabranch"):
        get_logger("anabranch.client.some").error("some.fault", topic="t", exc_info=fault)
    (record,) = (each for each in caplog.records if each.name == "anabranch.client.some")
    assert (record.__dict__["event"], record.__dict__["fields"]) == ("some.fault", {"topic": "t"})
    assert record.exc_info is not None
    assert record.exc_info[1] is fault
    assert record.funcName.startswith("test_a_record")


def test_a_node_writes_them_among_its_own_lines() -> None:
    lines = io.StringIO()
    configure_logging(load_settings(None, {}, {"logFormat": "json"}), lines)
    get_logger("anabranch.wire.connection").bind(peer="p:1").warning("wire.silent", seconds=30.0)
    get_logger("anabranch.wire.connection").error("wire.fault", exc_info=ValueError("x"))
    silent, fault = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert (silent["level"], silent["event"]) == ("warning", "wire.silent")
    assert (silent["peer"], silent["seconds"]) == ("p:1", 30.0)
    assert "ValueError: x" in fault["trace"]
