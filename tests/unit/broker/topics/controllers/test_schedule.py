"""Which topics a node looks at in a tick, what it works on, and what it leaves to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.broker.errors import ElsewhereError, UnavailableError
from anabranch.broker.http.server import bind
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings import load_settings
from anabranch.broker.topics.controllers.schedule import TickSchedule
from anabranch.broker.topics.subscriptions.dead_letters import create_elsewhere
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.segments.sealing import SegmentTopic
from support.http import http_nodes
from support.memory_cluster import until
from support.memory_segments import MemorySegments
from support.tokens import token
from support.wire import HOST

UNITS = ("public/default/0x00000000_0x7fffffff", "public/default/0x7fffffff_0xffffffff")


def everything(_: str) -> bool:
    return True


def names(count: int) -> list[str]:
    return [f"public/default/t{number:05}" for number in range(count)]


def looked(
    schedule: TickSchedule, now: float, topics: list[str], mine: Iterable[str] = ()
) -> list[str]:
    own = frozenset(mine or topics)
    return list(schedule.looks(now, UNITS, lambda _: topics, own.__contains__))


def test_every_controller_has_one_turn_in_ten_ticks_however_often_it_was_made_anew() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in [*names(25), *names(25), *names(3)]:
        schedule.take_up(name)
    turns = [name for _ in range(10) for name in schedule.turns(everything)]
    assert turns == [*names(25), *names(5)]  # three in each tick


def test_a_tick_has_no_more_than_250_turns_and_all_controllers_have_theirs_in_order() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in names(3_000):
        schedule.take_up(name)
    ticks = [list(schedule.turns(everything)) for _ in range(12)]
    assert [len(each) for each in ticks] == [250] * 12
    assert [name for each in ticks for name in each] == names(3_000)


def test_who_has_no_controller_any_more_loses_its_turn() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in names(10):
        schedule.take_up(name)
    assert [name for _ in range(10) for name in schedule.turns(lambda _: False)] == []
    schedule.take_up("public/default/t00003")
    assert list(schedule.turns(everything)) == ["public/default/t00003"]


def test_what_is_due_is_looked_at_once_when_the_log_says_so() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name, due_ms in (("late", 3_000.0), ("soon", 1_000.0), ("never", 1_000.0), ("moved", 1.0)):
        schedule.remind(name, due_ms)
    schedule.remind("never", None)
    schedule.remind("moved", 2_000.0)
    schedule.remind("soon", 1_000.0)
    assert list(schedule.due(999)) == []
    assert list(schedule.due(1_000)) == ["soon"]
    assert list(schedule.due(1_000)) == []
    assert list(schedule.due(9_000)) == ["moved", "late"]
    schedule.remind("late", 3_000.0)
    assert list(schedule.due(9_000)) == ["late"]


def test_a_namespace_is_looked_through_a_few_topics_in_each_tick() -> None:
    schedule = TickSchedule(60.0, 0.0)
    topics = names(500)
    assert looked(schedule, 1.0, topics) == []
    schedule.look_through(UNITS)
    ticks = [looked(schedule, 1.0, topics) for _ in range(4)]
    assert [len(tick) for tick in ticks] == [200, 200, 100, 0]
    assert [name for tick in ticks for name in tick] == topics


def test_all_namespaces_are_looked_through_again_after_the_interval() -> None:
    schedule = TickSchedule(60.0, 0.0)
    assert looked(schedule, 59.9, names(3)) == []
    assert looked(schedule, 60.0, names(3)) == names(3)
    assert looked(schedule, 119.9, names(3)) == []
    assert looked(schedule, 120.0, names(3)) == names(3)


# --- how a node's work on Kafka topics is spread over threads: nobody waits for another's trouble


HOME = "/admin/v2/scalable/public/default"
STUCK = 7
SHORT_S = 3.0


class StuckSegments(MemorySegments):
    """Kafka never answers about topics whose names say so; the longer waits end with the test."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []
        self.hold.clear()

    def _begin(self, what: str) -> None:
        self.calls.append(what)

    def create(self, topics: Sequence[SegmentTopic], deadline_s: float) -> None:
        name = topics[0].name
        if "stuck" not in name:
            super().create(topics, deadline_s)
            return
        self.tried.append(name)
        if deadline_s > SHORT_S:
            self.hold.wait(60.0)
        raise KafkaUnreachableError("Kafka did not answer")


async def test_topics_that_kafka_does_not_answer_for_hold_up_no_others() -> None:
    async with http_nodes() as (nodes, cluster):
        stuck = cluster.segments = StuckSegments()
        http = nodes[0].http
        hopeless = [asyncio.create_task(http.put(f"{HOME}/stuck-{n}")) for n in range(STUCK)]
        try:
            await until(lambda: len(set(stuck.tried)) == STUCK)
            await until(lambda: len(stuck.tried) > STUCK)  # one is tried again, and waits long
            assert (await http.put(f"{HOME}/fine")).status_code == 204
            assert (await http.post(f"{HOME}/fine/split/0")).status_code == 204
            assert not any(task.done() for task in hopeless)
        finally:
            stuck.hold.set()
            for task in hopeless:
                task.cancel()
            await asyncio.gather(*hopeless, return_exceptions=True)


# --- what a node shows another one that it asks for something -------------------------------------


@pytest.mark.parametrize(("scheme", "is_told"), [("http", True), ("https", False)])
def test_a_token_that_goes_in_plain_is_told(tmp_path: Path, scheme: str, is_told: bool) -> None:
    file = tmp_path / "node.token"
    file.write_text(token("node"))
    settings = {
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": str(file),
    }
    with bind(HOST, 0) as held:
        url = f"{scheme}://{HOST}:{held.getsockname()[1]}"  # where nobody answers

    async def test() -> None:
        outgoing = OutgoingAccess(load_settings(None, {}, settings), 10.0)
        web, web_tls = (url, "") if scheme == "http" else ("", url)
        there = ElsewhereError("there", web, web_tls)
        with pytest.raises(UnavailableError, match="was not created"):
            await create_elsewhere(outgoing, "acme/shop/dead", there, 5.0)

    with capture_logs() as logged:
        asyncio.run(test())
    assert bool([line for line in logged if line["event"] == "security.not_encrypted"]) is is_told
    assert token("node") not in str(logged)
