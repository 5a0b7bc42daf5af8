"""What others wrote reaches no terminal as a command to it."""

from __future__ import annotations

import json
import os
import re

import pytest

from anabranch.cli.shared.terminal import print_data
from support.answering import Answer, node
from support.commands import run_here

EVIL = "\x1b]0;owned\x07\x9b2J\u202egnp\r\nowner=eve"
_ESCAPED = r"\u001b]0;owned\u0007\u009b2J\u202egnp\u000d\u000aowner=eve"
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def test_a_property_s_value_is_escaped_and_begins_no_line() -> None:
    answer: Answer = (200, {}, {"team": EVIL})
    with node(lambda _verb, _path: answer) as url:
        words = ("topics", "properties", "public/default/t", "--url", url)
        text, document = run_here(*words).stdout, run_here(*words, "--json").stdout
    assert text == f"team={_ESCAPED}\n"
    assert not _CONTROL.search(document)
    assert json.loads(document) == {"team": EVIL}


def test_a_reason_is_escaped_also_where_it_is_told_as_an_error() -> None:
    answer: Answer = (409, {}, {"reason": EVIL})
    with node(lambda _verb, _path: answer) as url:
        said = run_here("topics", "properties", "public/default/t", "--url", url).stderr
    assert said == f"anabranch: 409: {_ESCAPED}\n"


@pytest.mark.parametrize(
    ("is_terminal", "raw", "shown"),
    [
        (True, False, b"k\\u0009\t\\u001b[2J\\u000av\r\n"),
        (True, True, b"k\t\t\x1b[2J\r\nv\r\n"),
        (False, False, b"k\t\t\x1b[2J\nv\n"),
    ],
)
def test_a_message_is_escaped_on_a_terminal_unless_raw(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, raw: bool, shown: bytes
) -> None:
    reading, writing = os.openpty() if is_terminal else os.pipe()
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        print_data(["k\t", "\x1b[2J\nv"], raw=raw)
        assert os.read(reading, 100) == shown
    os.close(reading)
