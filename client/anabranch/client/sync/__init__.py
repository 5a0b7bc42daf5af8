"""The SDK without asyncio, for scripts: each object of it under its own name, with calls that wait.

    with Client("pulsar://127.0.0.1:6650") as client:
        producer = client.create_producer("topic://public/default/orders")
        producer.send(b"value", key="key")
        for message in client.subscribe("topic://public/default/orders", "billing"):
            ...

Methods have the arguments and results of the asynchronous ones; a test holds them equal. The event
loop runs on a thread of its own, so the objects may be used by several threads; each call costs two
changes of thread. To send or receive much use `send_many` and `receive_many`.

What is called back, such as `on_delivery`, is called on that thread, where nothing may wait for the
loop: there the objects refuse every call. A call that Ctrl-C interrupts is cancelled. Closing the
client ends the calls of other threads with ClosedError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Unpack

from anabranch.client import _client as client
from anabranch.client._consumer.checkpoint import Checkpoint
from anabranch.client._consumer.checkpoint import PositionOf as _AsyncPositionOf
from anabranch.client._settings import ConsumerOptions, ConsumerSettings
from anabranch.client.sync._faces import (
    CheckpointConsumer,
    Face,
    LayoutWatch,
    LoopThread,
    Producer,
    QueueConsumer,
    StreamConsumer,
    makes,
    waits,
)

__all__ = [
    "CheckpointConsumer",
    "Client",
    "LayoutWatch",
    "PositionOf",
    "Producer",
    "QueueConsumer",
    "StreamConsumer",
    "connect",
]

PositionOf = Callable[[int, int], int | None]


class Client(Face[client.Client]):
    """A cluster, named by the URL of one or several of its nodes; as `anabranch.client.Client`.

    Closing it closes what it made as well, and ends its thread.
    """

    def __init__(self, url: str, *, kafka: Mapping[str, Any] | None = None) -> None:
        thread = LoopThread()
        try:
            super().__init__(thread.call(client.Client, url, kafka=kafka), thread)
        except BaseException:
            thread.stop()
            raise

    watch = makes(client.Client.watch, LayoutWatch)
    create_producer = makes(client.Client.create_producer, Producer)
    subscribe = makes(client.Client.subscribe, StreamConsumer)
    subscribe_queue = makes(client.Client.subscribe_queue, QueueConsumer)
    peek = waits(client.Client.peek)

    def subscribe_checkpoint(
        self,
        topic: str,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        position_of: PositionOf | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> CheckpointConsumer:
        """An ordered consumer whose positions the caller keeps; else as `subscribe`.

        `position_of` is a plain function here, and is called on a thread where it may wait.
        """
        part = self._thread.wait(
            self._part.subscribe_checkpoint,
            topic,
            subscription,
            consumer_name,
            settings,
            checkpoint=checkpoint,
            position_of=None if position_of is None else _on_a_thread(position_of),
            **changes,
        )
        return CheckpointConsumer(part, self._thread)

    def close(self) -> None:
        """Closes what it made, and ends its thread; again it does nothing."""
        try:
            super().close()
        finally:
            self._thread.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._thread.stop()


def connect(url: str, *, kafka: Mapping[str, Any] | None = None) -> Client:
    """A `Client` of that URL. Raises InvalidInputError."""
    return Client(url, kafka=kafka)


def _on_a_thread(position_of: PositionOf) -> _AsyncPositionOf:
    async def asked(segment_id: int, bucket: int) -> int | None:
        return await asyncio.to_thread(position_of, segment_id, bucket)

    return asked
