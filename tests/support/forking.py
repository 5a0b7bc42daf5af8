"""A program that takes open clients to where they are of no use, and says what comes of it.

`python -m support.forking WAY URL WEB TOPIC`; the ways are `fork`, for the face that waits,
`multiprocessing`, for the other one, and `second_run`, of `asyncio.run`. Each says a line for each
call that is not refused as it should be, `refused` after the last one, and `unharmed` once all that
was made works in the parent yet.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from anabranch import admin as administration
from anabranch import client as sdk
from anabranch.client import sync
from support.waiting import WAIT_S

_CHILD_S_MAX = 30  # it is refused at once, and Python ends
_Call = Callable[[], Any]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _got(found: Any) -> Any:
    """What a call of either face returns in the end."""
    return await found if inspect.isawaitable(found) else found


class Opened:
    """One of each kind, which has been used."""

    def __init__(self, client: Any, admin: Any, topic: str) -> None:
        self.client = client
        self.admin = admin
        self.topic = topic
        self.parts: dict[str, Any] = {}
        self.received: dict[str, Any] = {}

    async def start(self) -> None:
        client, topic = self.client, self.topic
        names = topic.rpartition("/")[2]
        selection = sdk.TopicSelection("public/default", pattern=names)
        self.parts = {
            "producer": await _got(client.create_producer(topic, linger_ms=0)),
            "stream": await _got(client.subscribe(topic, "stream")),
            "queue": await _got(client.subscribe_queue(topic, "queue")),
            "files": await _got(client.subscribe_checkpoint(topic, "files")),
            "streams": await _got(client.subscribe_topics(selection, "streams")),
        }
        await self.use(b"before")

    async def use(self, value: bytes) -> None:
        """A message goes through all of it."""
        parts = self.parts
        await _got(parts["producer"].send(value))
        for name in ("stream", "queue", "files", "streams"):
            found = await _got(parts[name].receive(WAIT_S))
            assert found.value == value, (name, found.value)
            self.received[name] = found
            if name == "queue":
                await _got(parts[name].acknowledge(found))
        assert "public" in await _got(self.admin.tenants.get_tenants())

    async def close(self) -> None:
        await _got(self.client.close())
        await _got(self.admin.close())

    async def refused(self, error: str) -> None:
        """Calls all that a program would."""
        parts, received = self.parts, self.received
        producer, stream, files = parts["producer"], parts["stream"], parts["files"]
        calls: dict[str, _Call] = {
            "create_producer": lambda: self.client.create_producer(self.topic),
            "send": lambda: producer.send(b"no"),
            "post": lambda: producer.post(b"no"),
            "send_nowait": lambda: producer.send_nowait(b"no"),
            "send_many": lambda: producer.send_many([("k", b"no")]),
            "producer.flush": lambda: producer.flush(),
            "stream.flush": lambda: stream.flush(),
            "stream.acknowledge": lambda: stream.acknowledge(received["stream"]),
            "stream.acknowledge_all": lambda: stream.acknowledge_all(),
            "streams.acknowledge": lambda: parts["streams"].acknowledge(received["streams"]),
            "checkpoint": lambda: files.checkpoint(),
            "queue.reject": lambda: parts["queue"].reject(received["queue"]),
            "admin": lambda: self.admin.tenants.get_tenants(),
        }
        for name in received:
            calls[f"{name}.receive"] = functools.partial(parts[name].receive, WAIT_S)
            calls[f"{name}.receive_many"] = parts[name].receive_many
        calls |= {f"{name}.close": part.close for name, part in parts.items()}
        calls |= {"client.close": self.client.close, "admin.close": self.admin.close}
        for name, call in calls.items():
            try:
                async with asyncio.timeout(WAIT_S):
                    say(f"{name} gave {await _got(call())!r}")
            except Exception as raised:  # noqa: BLE001 - whatever it is, it is to be told
                if type(raised).__name__ != error or "Make another one" not in str(raised):
                    say(f"{name} raised {raised!r}")
        say("refused")


def fork(url: str, web: str, topic: str) -> None:
    """The child ends as programs do, and frees what it has."""
    opened = Opened(sync.Client(url), administration.Admin(web), topic)
    asyncio.run(opened.start())
    child = os.fork()
    if child == 0:
        signal.alarm(_CHILD_S_MAX)
        asyncio.run(opened.refused("ForkedError"))
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        say(f"the child ended with {status}")
    asyncio.run(_unharmed(opened))


def multiprocess(url: str, web: str, topic: str) -> None:
    def child(opened: Opened) -> None:
        asyncio.run(opened.refused("ForkedError"))

    async def parent() -> None:
        opened = Opened(sdk.Client(url), administration.AsyncAdmin(web), topic)
        await opened.start()
        process = multiprocessing.get_context("fork").Process(target=child, args=(opened,))
        process.start()
        await asyncio.to_thread(process.join, _CHILD_S_MAX)
        if process.exitcode != 0:
            say(f"the child ended with {process.exitcode}")
            process.kill()
        await _unharmed(opened)

    asyncio.run(parent())


async def _unharmed(opened: Opened) -> None:
    await opened.use(b"after")
    await opened.close()
    say("unharmed")


def second_run(url: str, web: str, topic: str) -> None:
    opened = Opened(sdk.Client(url), administration.AsyncAdmin(web), topic)
    asyncio.run(opened.start())
    asyncio.run(opened.refused("WrongLoopError"))

    async def other() -> None:
        async with sdk.Client(url) as client:
            values = [message.value for message in await client.peek(topic, start="earliest")]
            assert values == [b"before"], values

    asyncio.run(other())
    say("unharmed")


if __name__ == "__main__":
    ways = {"fork": fork, "multiprocessing": multiprocess, "second_run": second_run}
    ways[sys.argv[1]](*sys.argv[2:])
