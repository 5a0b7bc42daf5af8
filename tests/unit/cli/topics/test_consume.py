"""`topics consume` with a consumer that is given some messages, and then no more."""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.topics import consume as consume_module
from anabranch.client import DeadlineError, TopicSelection

TOPIC = "public/default/orders"


class Given:
    """Client and consumer of each kind."""

    def __init__(self, count: int) -> None:
        self.left = list(range(count))
        self.waits: list[float | None] = []
        self.acknowledged = 0
        self.is_closed = False

    async def subscribe(self, *_: Any, **__: Any) -> "Given":
        return self

    subscribe_queue = subscribe

    async def receive_many(self, _most: int, timeout_s: float | None) -> list[Any]:
        return [await self.receive(timeout_s)]

    async def receive(self, timeout_s: float | None) -> Any:
        if not self.left:
            self.waits.append(timeout_s)
            raise DeadlineError(f"no message came in {timeout_s:g} s; Kafka said last: no")
        return SimpleNamespace(
            segment_id=0, bucket=0, offset=self.left.pop(0), key=b"k", value=b"v"
        )

    def acknowledge_all(self) -> None:
        self.acknowledged += 1

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    found = Given(2)

    @contextlib.asynccontextmanager
    async def opened(*_: Any, **__: Any) -> AsyncIterator[Given]:
        yield found

    monkeypatch.setattr(consume_module, "open_client", opened)
    return found


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_who_waits_for_nothing_any_more_has_what_came_and_a_status_of_its_own(
    kind: str, given: Given
) -> None:
    words = [TOPIC, "--subscription", "s", "--type", kind, "--timeout", "2.5"]
    found = CliRunner().invoke(consume_module.consume, words, standalone_mode=False)
    assert (found.return_value, found.stdout) == (3, "0/0@0\tk\tv\n0/0@1\tk\tv\n")
    assert found.stderr == "anabranch: no message came in 2.5 s; Kafka said last: no\n"
    assert given.waits[-1] == 2.5
    assert (given.acknowledged > 0, given.is_closed) == (True, True)


def test_who_has_as_many_as_wanted_does_not_wait(given: Given) -> None:
    words = [TOPIC, "--subscription", "s", "--timeout", "2.5", "--max", "2"]
    found = CliRunner().invoke(consume_module.consume, words, standalone_mode=False)
    assert (found.return_value, found.stderr, given.waits) == (0, "", [])


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ([], "give a TOPIC"),
        (["a/b/c", "--pattern", "x"], "give a TOPIC"),
        (["--property", "team"], "not of the form k=v"),
        (["--pattern", "x", "--property", "a=b"], "not by both"),
        (["--pattern", ""], "--pattern is empty"),
        (["--pattern", "x", "--type", "queue"], "a queue has one topic"),
        (["--namespace", ""], "not of the form tenant/namespace"),
        (["--property", "team=a", "--property", "team=b"], "--property is given twice"),
    ],
)
def test_what_could_select_other_topics_is_refused(chosen: list[str], why: str) -> None:
    answer = CliRunner().invoke(consume_module.consume, [*chosen, "--subscription", "s"])
    assert answer.exit_code != 0
    assert why in answer.output + str(answer.exception)


def test_a_selection_that_nothing_may_come_of_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = TopicSelection("public/nowhere", pattern="orders-.*")
    consume_module.tell_what_is_missing(chosen, ["public/nowhere/orders-eu"], {})
    assert capsys.readouterr().err == ""
    consume_module.tell_what_is_missing(chosen, [], {})
    assert "no topic public/nowhere/orders-.* yet" in capsys.readouterr().err
    failing = {f"public/nowhere/orders-{n:02}": "it is of another kind" for n in range(12)}
    consume_module.tell_what_is_missing(chosen, [], failing)
    told = capsys.readouterr().err.splitlines()
    assert "orders-00 is tried again, and not consumed for now: it is of another kind" in told[0]
    assert len(told) == 11
    assert "2 more" in told[-1]
