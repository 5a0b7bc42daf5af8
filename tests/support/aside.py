"""Stands for the producer of the topic for dead letters."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

from confluent_kafka import Message as KafkaMessage

from anabranch import client as sdk
from support.there import there


class Aside:
    """Keeps what is sent to it, or fails."""

    is_closed = False

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]] = []
        self.topics: list[str] = []
        self.failure: Exception | None = None
        self.failures: list[Exception] = []  # of one sending each
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.bytes_max = math.inf  # of what is added

    async def send(self, value: bytes, key: bytes | None, *, headers: Any) -> None:
        await self.may_send.wait()
        if self.failure is not None:
            raise self.failure
        if self.failures:
            raise self.failures.pop()
        pairs = [(n, c.encode() if isinstance(c, str) else c) for n, c in headers]
        added = [content for name, content in pairs if name.startswith("anabranch")]
        if sum(map(len, added)) > self.bytes_max:
            raise sdk.MessageTooLargeError("too large")
        self.sent.append((value, key, pairs))

    async def abandon(self) -> None:
        pass

    def letter(self, index: int = 0) -> sdk.DeadLetter:
        value, key, headers = self.sent[index]
        pairs: Any = headers
        raw = KafkaMessage(topic="d", partition=0, value=value, key=key, headers=pairs, offset=0)
        return there(sdk.DeadLetter.of(sdk.Message(raw, cast("Any", None))))

    def maker(self) -> Any:
        """Returns what makes this producer for any topic."""

        async def made(topic: str, settings: sdk.ProducerSettings) -> Aside:
            self.topics.append(topic)
            return self

        return made
