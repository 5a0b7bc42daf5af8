"""`topics watch` on a node of which the test says what it tells."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from click.testing import CliRunner

from anabranch.cli.topics import watch as watch_module
from anabranch.cli.topics.watch import ListEvent, follow, watch
from anabranch.client import Client, ListChange, TopicSelection
from support.lister import Lister
from support.waiting import until
from support.wire import HOST, on_both_loops, serving

pytestmark = on_both_loops

HOME = TopicSelection("public/default")
A, B, C = (f"topic://public/default/{each}" for each in "abc")


@asynccontextmanager
async def following(
    node: Lister, *, changes_only: bool = False
) -> AsyncIterator[list[tuple[ListEvent, str]]]:
    """What is shown while the block runs."""
    shown: list[tuple[ListEvent, str]] = []

    def show(event: ListEvent, topic: str) -> None:
        shown.append((event, topic.rpartition("/")[2]))

    async with serving(node.session) as server, Client(f"pulsar://{HOST}:{server.port}") as client:
        work = asyncio.create_task(follow(client, HOME, show, changes_only=changes_only))
        await until(lambda: bool(node.asked))
        try:
            yield shown
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def test_what_is_there_is_shown_first_and_then_what_comes_and_goes() -> None:
    node = Lister(B, A)
    async with following(node) as shown:
        await until(lambda: len(shown) == 2)
        node.change(added=C)
        node.change(removed=A)
        await until(lambda: len(shown) == 4)
    assert shown == [
        (ListEvent.PRESENT, "a"),
        (ListEvent.PRESENT, "b"),
        (ListEvent.ADDED, "c"),
        (ListEvent.REMOVED, "a"),
    ]


async def test_what_changed_while_the_node_was_away_is_shown_as_it_comes_back() -> None:
    node = Lister(A)
    async with following(node, changes_only=True) as shown:
        node.cut()
        node.topics = {B}
        await until(lambda: len(shown) == 2)
    assert sorted(shown, key=lambda each: each[1]) == [
        (ListEvent.REMOVED, "a"),
        (ListEvent.ADDED, "b"),
    ]


class _Given:
    """A client whose list is one topic, and changes twice at once."""

    topics = frozenset({"public/default/a"})

    def __init__(self) -> None:
        self.asked: TopicSelection | None = None
        self.listeners = self

    async def watch_topics(self, chosen: TopicSelection) -> _Given:
        self.asked = chosen
        return self

    async def __aenter__(self) -> _Given:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def append(self, listener: object) -> None:
        assert callable(listener)
        listener(ListChange(("public/default/b",), ("public/default/a",)))
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> _Given:
    found = _Given()

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[_Given]:
        yield found

    monkeypatch.setattr(watch_module, "open_client", opened)
    return found


def test_lines_say_what_became_of_each_topic_until_ctrl_c(given: _Given) -> None:
    found = CliRunner().invoke(watch, ["public/default", "--pattern", "[ab]"])
    assert found.exit_code == 0, found.output
    assert found.stdout == f"= {A}\n- {A}\n+ {B}\n"
    assert given.asked == TopicSelection("public/default", pattern="[ab]")


def test_lines_of_json_have_an_event_a_topic_and_a_time(given: _Given) -> None:
    found = CliRunner().invoke(watch, ["--property", "team=blue", "--json", "--changes-only"])
    assert found.exit_code == 0, found.output
    told = [msgspec.json.decode(line) for line in found.stdout.splitlines()]
    assert [(each["event"], each["topic"]) for each in told] == [("removed", A), ("added", B)]
    assert all(each["time"].endswith("Z") for each in told)
    assert given.asked == TopicSelection("public/default", properties={"team": "blue"})
