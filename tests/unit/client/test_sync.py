"""The synchronous face: whatever ends a call, no thread waits for ever, and no message is lost."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from anabranch.client import ClosedError
from anabranch.client._aio import Closing
from anabranch.client._face import Face
from anabranch.client.sync import Client
from anabranch.core.errors import InvalidInputError
from support.waiting import WAIT_S


class Box(Closing):
    """What is put in can be received, and be called back with."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.closed = 0
        self._items: asyncio.Queue[str] = asyncio.Queue()

    def put(self, item: str) -> None:
        self._items.put_nowait(item)

    async def receive(self) -> str:
        asyncio.get_running_loop().call_soon(self.waiting.set)
        return await self._items.get()

    def call_back(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    async def close(self) -> None:
        self.closed += 1


class BoxFace(Face[Box]):
    """A box, as scripts would use it."""

    def put(self, item: str) -> None:
        self._thread.call(self._part.put, item)

    def receive(self) -> str:
        return self._thread.wait(self._part.receive)

    def call_back(self, function: Callable[[], None]) -> None:
        self._thread.call(self._part.call_back, function)


@contextmanager
def boxed() -> Iterator[tuple[Box, BoxFace, Client]]:
    """The box, the face of it that scripts use, and the client that has it."""
    client = Client("pulsar://127.0.0.1:1")
    thread = client._thread
    try:
        box = thread.call(Box)
        thread.call(client._part.adopt, box)
        yield box, BoxFace(box, thread), client
    finally:
        client.close()


def _elsewhere(function: Callable[[], object]) -> Future[object]:
    """Its outcome on another thread."""
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def test_closing_ends_what_another_thread_waits_for() -> None:
    with boxed() as (box, face, client):
        receiving = _elsewhere(face.receive)
        assert box.waiting.wait(WAIT_S)
        client.close()
        with pytest.raises(ClosedError, match="the client was closed"):
            receiving.result(WAIT_S)
        with pytest.raises(ClosedError, match="the client was closed"):
            face.receive()


def test_no_call_that_comes_while_the_client_is_closed_waits_for_ever() -> None:
    with boxed() as (_, face, client):
        calls = [_elsewhere(face.receive) for _ in range(50)]
        _elsewhere(client.close)
        for call in calls:
            with pytest.raises(ClosedError):
                call.result(WAIT_S)


def test_what_is_closed_already_or_with_its_client_is_closed_again_without_an_error() -> None:
    with boxed() as (box, face, client):
        with client, face:
            client.close()
            client.close()
        face.close()
    assert box.closed == 1


def test_a_call_that_ctrl_c_interrupts_takes_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with boxed() as (box, face, _):

        def interrupted(_: object) -> None:
            assert box.waiting.wait(WAIT_S)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                face.receive()
        face.put("one")
        face.put("two")
        assert [face.receive(), face.receive()] == ["one", "two"]


@pytest.mark.parametrize("name", ["receive", "close"])
def test_a_call_on_the_loops_own_thread_is_refused_with_what_to_do(name: str) -> None:
    with boxed() as (_, face, _):
        heard: queue.Queue[BaseException | None] = queue.Queue()

        def called_back() -> None:
            try:
                getattr(face, name)()
            except InvalidInputError as error:
                heard.put(error)
            else:
                heard.put(None)

        face.call_back(called_back)
        refusal = heard.get(timeout=WAIT_S)
        assert "on_delivery" in str(refusal)
        assert "queue.Queue" in str(refusal)
        face.put("one")
        assert face.receive() == "one"
