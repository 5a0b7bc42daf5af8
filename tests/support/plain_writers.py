"""Producers of others with their own settings, which know no segments."""

from __future__ import annotations

import asyncio
import itertools
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, Message, Producer
from py4j.protocol import Py4JJavaError

from support.alternation import RefusedError, Send
from support.java_clients import java_producer
from support.quiet import QUIET
from support.waiting import WAIT_S

KINDS = ("java", "librdkafka", "aiokafka")  # as the senders of `plain_senders` stand


@asynccontextmanager
async def plain_senders(
    java: Any, servers: str, topic: str, acks: str = ""
) -> AsyncIterator[list[Send]]:
    """One of each kind, which returns once it was told of the message, and raises RefusedError with
    its word for that.
    """
    given = {"acks": acks} if acks else {}
    # What Java takes its time for may not keep the consumers of this loop from their controller.
    of_java = await asyncio.to_thread(java_producer, java, servers, given)
    settings = {**QUIET, "bootstrap.servers": servers, "partitioner": "murmur2_random", **given}
    of_librdkafka = Producer({**settings, "linger.ms": 0})
    turn = threading.Lock()  # who flushes may be given what another one waits for
    options = {"acks": int(acks)} if acks else {}

    def by_java(value: bytes, key: str) -> None:
        record = java.org.apache.kafka.clients.producer.ProducerRecord
        try:
            of_java.send(record(topic, key.encode(), value)).get()
        except Py4JJavaError as error:
            raise RefusedError(cause(error)) from None

    def by_librdkafka(value: bytes, key: str) -> None:
        answers: list[KafkaError | None] = []

        def done(error: KafkaError | None, _: Message) -> None:
            answers.append(error)

        with turn:
            of_librdkafka.produce(topic, value, key, on_delivery=done)
            assert of_librdkafka.flush(WAIT_S) == 0
        if answers[0] is not None:
            raise RefusedError(answers[0].name())

    async with AIOKafkaProducer(bootstrap_servers=servers, **options) as of_aiokafka:

        async def by_aiokafka(value: bytes, key: str) -> None:
            try:
                await of_aiokafka.send_and_wait(topic, value, key.encode())
            except AioKafkaError as error:
                raise RefusedError(type(error).__name__) from None

        try:
            yield [_in_thread(by_java), _in_thread(by_librdkafka), by_aiokafka]
        finally:
            await asyncio.to_thread(of_java.close)
            of_librdkafka.close()


def _in_thread(send: Callable[[bytes, str], None]) -> Send:
    return lambda value, key: asyncio.to_thread(send, value, key)


def cause(error: Py4JJavaError) -> str:
    """The name of what Java has thrown, or of its cause."""
    thrown = error.java_exception
    return str((thrown.getCause() or thrown).getClass().getSimpleName())


class _Writer(ABC):
    """Sends numbered values in a thread of its own."""

    def __init__(self) -> None:
        self.acked: dict[bytes, list[bytes]] = defaultdict(list)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @abstractmethod
    def _run(self) -> None: ...

    async def stop(self) -> dict[bytes, list[bytes]]:
        """What was acknowledged."""
        self._ends.set()
        await asyncio.to_thread(self._thread.join)
        return dict(self.acked)


class LibrdkafkaWriter(_Writer):
    """Goes on after Kafka has refused a message, until it is stopped."""

    def __init__(self, servers: str, topic: str, keys: list[bytes]) -> None:
        self.refused: list[KafkaError] = []
        settings = {"bootstrap.servers": servers, "partitioner": "murmur2"}
        own = {"linger.ms": 5, "enable.idempotence": True}
        self._producer = Producer({**QUIET, **settings, **own})
        self._topic, self._keys = topic, keys
        super().__init__()

    def _answered(self, key: bytes, value: bytes, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acked[key].append(value)
        else:
            self.refused.append(error)

    def _run(self) -> None:
        for number in itertools.count():
            if self._ends.is_set():
                break
            key, value = self._keys[number % len(self._keys)], b"%d" % number
            self._producer.produce(
                self._topic, value, key, on_delivery=partial(self._answered, key, value)
            )
            self._producer.poll(0.002)
        self._producer.flush(WAIT_S)


class JavaWriter(_Writer):
    """Sends numbered values of all keys, in batches, until it is stopped or fails.

    Java's producer sends a batch that is too large in parts. A part that is no smaller than
    `batch.size` allows it repeats without a pause, until `delivery.timeout.ms` is over.
    """

    def __init__(self, java: Any, servers: str, topic: str, keys: list[bytes]) -> None:
        self.failed: set[bytes] = set()  # values, of which some may be stored
        self._record = java.org.apache.kafka.clients.producer.ProducerRecord
        short = {"delivery.timeout.ms": "5000", "request.timeout.ms": "4000"}
        self._producer = java_producer(java, servers, {"linger.ms": "5", **short})
        self._topic, self._keys = topic, keys
        super().__init__()

    def _run(self) -> None:
        numbers = itertools.count()
        while not (self._ends.is_set() or self.failed):
            told = []
            for key, number in zip(self._keys, numbers, strict=False):
                record = self._record(self._topic, key, b"%d" % number)
                told.append((key, b"%d" % number, self._producer.send(record)))
            self._producer.flush()
            for key, value, answer in told:
                try:
                    answer.get()
                    self.acked[key].append(value)
                except Py4JJavaError:
                    self.failed.add(value)
        self._producer.close()
