"""Numbered messages of many keys, and what Kafka holds of them in the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch.client import Producer, TopicLayout
from support.log_ends import log_end
from support.quiet import QUIET
from support.waiting import WAIT_S

_BATCH: Final = 5_000


class Stored(bytes):
    """A value, and where Kafka has it: segment, bucket and offset, and its time."""

    where = ""


def stored(
    kafka: str, layout: TopicLayout, security: Mapping[str, Any] | None = None
) -> dict[bytes, list[bytes]]:
    """The values of each key in the order in which consumers get them."""
    values: dict[bytes, list[bytes]] = defaultdict(list)
    following: Counter[tuple[str | None, int | None]] = Counter()  # the next offset of each
    reader = Consumer(
        {
            **QUIET,
            "bootstrap.servers": kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # nothing that Kafka has lost may be passed over
            "fetch.wait.max.ms": 10,  # what it asks between two segments waits behind a fetch
            **(security or {}),
        }
    )
    try:
        for segment_id in sorted(layout.segments):
            part = layout.segments[segment_id]
            reader.list_topics(part.kafka_topic, WAIT_S)  # who leads: else it looks in a second
            places = [
                TopicPartition(part.kafka_topic, bucket, 0) for bucket in range(part.info.buckets)
            ]
            missing = sum(log_end(reader, place) for place in places)
            reader.assign(places)
            deadline = time.monotonic() + WAIT_S
            while missing > 0:
                if time.monotonic() > deadline:
                    at = [f"{each.partition}: {each.offset}" for each in reader.position(places)]
                    raise AssertionError(
                        f"{missing} records of {part.kafka_topic} do not come; read up to {at}"
                    )
                for message in reader.consume(_BATCH, 0.05):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    place = message.topic(), message.partition()
                    if message.timestamp()[1] < 0:
                        raise AssertionError(f"{place}: offset {message.offset()} has no time")
                    if message.offset() != following[place]:
                        told = f"offset {message.offset()} came instead of {following[place]}"
                        raise AssertionError(f"{place}: {told}")
                    following[place] += 1
                    value = Stored(message.value() or b"")
                    value.where = (
                        f"{segment_id}/{message.partition()}@{message.offset()}"
                        f" at {message.timestamp()[1]}"
                    )
                    values[message.key() or b""].append(value)
                    missing -= 1
    finally:
        reader.close()
    return dict(values)


def wrong(found: Mapping[bytes, list[bytes]], sent: Mapping[bytes, list[bytes]]) -> list[str]:
    """What is lost, repeated or out of order, a line for each key with some of it."""
    said = []
    for key in sorted({*found, *sent}):
        have, want = found.get(key, []), sent.get(key, [])
        if have == want:
            continue
        lost, extra = Counter(want) - Counter(have), Counter(have) - Counter(want)
        known = set(want)
        order = list(dict.fromkeys(value for value in have if value in known))
        turned = [a for a, b in itertools.pairwise(order) if int(a) > int(b)]
        said.append(
            f"{key!r}: lost {sorted(lost)[:5]}, repeated {sorted(extra)[:5]}, turned {turned[:5]}"
        )
        odd = {*extra, *turned}
        said += [
            f"{each!r}: {each.where}"
            for each in have
            if isinstance(each, Stored) and bytes(each) in odd
        ]
    return said


async def post(producer: Producer, numbers: range, sent: dict[bytes, list[bytes]]) -> None:
    """Sends the numbers with forty keys, and notes them as sent."""
    for number in numbers:
        key, value = b"key-%d" % (number % 40), b"%d" % number
        await producer.post(value, key)
        sent.setdefault(key, []).append(value)


class Traffic:
    """Sends numbered values of all keys until it is stopped, some at a time and then a pause."""

    def __init__(self, producer: Producer, keys: list[bytes], pause_s: float = 0.001) -> None:
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self._producer = producer
        self._pause_s = pause_s
        self._task = asyncio.create_task(self._run(keys))

    async def _run(self, keys: list[bytes]) -> None:
        for number in itertools.count():
            key = keys[number * 7 % len(keys)]
            await self._producer.post(b"%d" % number, key)
            self.sent[key].append(b"%d" % number)
            if number % 5 == 0:
                await asyncio.sleep(self._pause_s)

    async def stop(self) -> dict[bytes, list[bytes]]:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._producer.flush(60)
        return dict(self.sent)
