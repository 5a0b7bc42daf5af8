"""What is left of a client's parts when they are not made to the end, or not closed to the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.client import Client, ClosedError, DeadlineError
from anabranch.client._queue.share_group import Delivering, ShareGroup
from support.topic_node import TopicNode
from support.waiting import until
from support.wire import HOST, on_both_loops, serving

_TOPIC = "topic://public/default/orders"


@asynccontextmanager
async def slow(*, tells: bool = True, takes: bool = False) -> AsyncIterator[TopicNode]:
    """A node, a controller and a Kafka that answer up to the point that a test wants to stay at."""
    node = TopicNode()
    node.tells, node.takes = tells, takes
    connections: list[asyncio.StreamWriter] = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        node.heard.append("kafka")

    kafka = await asyncio.start_server(accept, HOST, 0)
    node.kafka = f"{HOST}:{kafka.sockets[0].getsockname()[1]}"
    try:
        async with serving(node.session) as server:
            node.url = f"pulsar://{HOST}:{server.port}"
            yield node
    finally:
        kafka.close()
        for each in connections:
            each.close()


def _tasks() -> list[str]:
    """The names of the SDK's tasks, but those of the client itself."""
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if "anabranch/client" in _file(task) and task.get_name() != "traffic"
    ]


def _file(task: asyncio.Task[Any]) -> str:
    coroutine: Any = task.get_coro()
    return str(coroutine.cr_code.co_filename)


def _produce(client: Client) -> Awaitable[Any]:
    return client.create_producer(_TOPIC)


def _subscribe(client: Client) -> Awaitable[Any]:
    return client.subscribe(_TOPIC, "billing", "one")


def _queue(client: Client) -> Awaitable[Any]:
    return client.subscribe_queue(_TOPIC, "jobs", "one")


Make = Callable[[Client], Awaitable[Any]]


@pytest.mark.parametrize(
    ("make", "tells", "point"),
    [
        (_produce, False, "watch"),
        (_produce, True, "kafka"),
        (_subscribe, True, "subscribe"),
        (_queue, True, "subscribe"),
    ],
)
@pytest.mark.parametrize("cancelled", [True, False])
@on_both_loops
async def test_what_is_cancelled_or_closed_while_it_is_made_leaves_nothing_behind(
    make: Make, tells: bool, point: str, cancelled: bool
) -> None:
    async with slow(tells=tells) as node, Client(node.url) as client:
        making = asyncio.ensure_future(make(client))
        await until(lambda: point in node.heard)
        if cancelled:
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
        else:
            await client.close()
            with pytest.raises(ClosedError, match="the client was closed"):
                await making
        assert _tasks() == []


@on_both_loops
async def test_a_layout_that_comes_as_the_client_is_closed_makes_no_producer() -> None:
    async with slow(tells=False) as node, Client(node.url) as client:
        making = asyncio.ensure_future(client.create_producer(_TOPIC))
        await until(lambda: "watch" in node.heard)
        (watch,) = client._parts
        watch._known.set()  # as the layout does
        await client.close()
        with pytest.raises(ClosedError):
            await making
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "traffic"]
        assert _tasks() == []


@on_both_loops
async def test_the_end_of_a_watch_does_not_hide_that_whoever_ends_it_is_cancelled() -> None:
    async with slow() as node, Client(node.url) as client:
        watch = await client.watch(_TOPIC)
        closing = asyncio.create_task(watch.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert _tasks() == []


@on_both_loops
async def test_a_client_whose_closing_is_cancelled_abandons_the_rest_and_says_what_was_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for bound in ("_WARM_S_MAX", "_ABANDON_S"):
        monkeypatch.setattr(f"anabranch.client._producer.producer.{bound}", 0.01)

    caplog.clear()
    async with slow() as node, Client(node.url) as client:
        producers = [await client.create_producer(_TOPIC) for _ in range(3)]
        for each in producers:
            for _ in range(7):
                each.send_nowait(b"value")
        closing = asyncio.create_task(client.close())
        await until(lambda: producers[-1].is_closed)
        assert not producers[0].is_closed
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [each.is_closed for each in producers] == [True, True, True]
        assert [each.under_way for each in producers] == [0, 0, 0]
        assert _tasks() == []
    told = [each.getMessage() for each in caplog.records if each.name.endswith(".producer")]
    assert len(told) == 3
    assert all("producer.abandoned" in each and "7 messages" in each for each in told)


@on_both_loops
async def test_of_several_parts_that_do_not_close_well_one_is_raised_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            raise DeadlineError(f"{self.name} took too long")

    caplog.clear()
    client = Client("pulsar://127.0.0.1:1")
    for name in ("first", "second", "third"):
        client.adopt(Part(name))
    with pytest.raises(DeadlineError, match="third"):
        await client.close()
    told = [each.getMessage() for each in caplog.records if each.name.endswith("._client")]
    assert ["second" in told[0], "first" in told[1], len(told)] == [True, True, 2]


@pytest.fixture
def known_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue's consumer asks no Kafka for how long it locks a record."""

    async def delivering(*_: object) -> Delivering:
        return Delivering(30.0, 10)

    async def await_state(*_: object) -> None:
        pass

    monkeypatch.setattr(ShareGroup, "delivering", delivering)
    monkeypatch.setattr(ShareGroup, "await_state", await_state)


def hold_leaving(consumer: Any, node: TopicNode, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Its leaving waits for what is returned, once the node has noted that it is about to."""
    leave, may_leave = consumer._leave, asyncio.Event()

    async def held() -> None:
        node.heard.append("about to leave")
        await may_leave.wait()
        await leave()

    monkeypatch.setattr(consumer, "_leave", held)
    return may_leave


@pytest.mark.usefixtures("known_lock")
@pytest.mark.parametrize("make", [_subscribe, _queue])
@on_both_loops
async def test_a_consumer_whose_closing_is_cancelled_leaves_and_later_calls_wait_for_that(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow(takes=True) as node, Client(node.url) as client:
        consumer = await make(client)
        may_leave = hold_leaving(consumer, node, monkeypatch)
        closing = [asyncio.create_task(consumer.close())]
        await until(lambda: "about to leave" in node.heard)
        closing[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing[0]
        closing = [asyncio.create_task(consumer.close()) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(each.done() for each in closing), "it is not closed yet"
        may_leave.set()
        await asyncio.gather(*closing)
        assert node.heard.count("unsubscribe") == 1
        assert _tasks() == []
        await until(lambda: not [t for t in threading.enumerate() if "anabranch-" in t.name])


@pytest.mark.usefixtures("known_lock")
@pytest.mark.parametrize("make", [_subscribe, _queue])
@on_both_loops
async def test_a_client_waits_for_a_consumer_whose_closing_was_cancelled_whatever_it_made_since(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow(takes=True) as node:
        client = Client(node.url)
        consumer = await make(client)
        may_leave = hold_leaving(consumer, node, monkeypatch)
        closing = asyncio.create_task(consumer.close())
        await until(lambda: "about to leave" in node.heard)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await client.watch(_TOPIC)
        assert consumer in client._parts, "it has not left yet"
        may_leave.set()
        await client.close()
        assert "unsubscribe" in node.heard


@pytest.mark.usefixtures("known_lock")
@pytest.mark.parametrize("make", [_subscribe, _queue])
@on_both_loops
async def test_a_consumer_whose_closing_is_cancelled_is_over_all_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.client._consumer.consumer.LEAVE_S_MAX", 0.05)  # nobody answers

    async with slow(takes=True) as node, Client(node.url) as client:
        node.lets_go = False
        consumer = await make(client)
        closing = asyncio.create_task(consumer.close())
        await until(lambda: "unsubscribe" in node.heard)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: _tasks() == [])
