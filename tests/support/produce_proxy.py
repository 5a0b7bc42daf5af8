"""A proxy in front of Kafka that knows appends: it can lose an answer, or refuse in Kafka's place.

So what takes a cluster of brokers that fall and come back (an append that was stored and never
answered, then refused for want of replicas while the ones behind it are not) happens at will, with
Kafka's own answers wherever it is asked.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import HOST, Differences
from anabranch.devkit.ports import free_port
from anabranch.wire.kafka.protocol import text
from anabranch.wire.varint import varint
from support.tcp_proxy import Pump, TcpProxy, end

_PRODUCE: Final = 0
_NOT_ENOUGH_REPLICAS: Final = 19
_BASE_SEQUENCE_AT: Final = 53  # in a record batch
_PRODUCER_AT: Final = 43
_VERSIONS: Final = (9, 10, 11, 12)  # whose requests and answers have the form that is written here


class Deed(Enum):
    """What becomes of a produce request."""

    PASS = auto()
    LOSE_ANSWER = auto()  # Kafka has it, and nothing behind it; the connection ends, nobody is told
    REFUSE = auto()  # not enough replicas, and Kafka never sees it


class Append(NamedTuple):
    """What a produce request brings to the first partition that it names."""

    producer_id: int
    epoch: int
    sequence: int  # of its first message


Decide = Callable[[Append], Deed]


class ProduceProxy(TcpProxy):
    """Listens on `port`, in front of Kafka's port `target`.

    It asks `decide` about each append to `topic`, once these are set: on several threads, about
    one append at a time. A topic must have one partition only.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.topic = ""
        self.decide: Decide = lambda _: Deed.PASS
        self._turn = threading.Lock()

    def _pumps(self, client: socket.socket, server: socket.socket) -> tuple[Pump, Pump]:
        pair = _Pair(client, server)
        return partial(self._requests, pair), partial(self._answers, pair)

    def _requests(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(pair.client)
                deed = Deed.PASS
                if (append := _append(frame, self.topic)) is not None:
                    with self._turn:
                        deed = self.decide(append)
                if deed is Deed.REFUSE:
                    # Answers keep the order of requests: this one waits for those before it.
                    pair.refuse(_correlation(frame), _refusal(frame, self.topic))
                    continue
                pair.ask(_correlation(frame), lose=deed is Deed.LOSE_ANSWER)
                pair.server.sendall(_sized(frame))
                if deed is Deed.LOSE_ANSWER:
                    return  # nothing behind it reaches Kafka; its answer ends the connection
        pair.end()

    def _answers(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(pair.server)
                if pair.is_lost(struct.unpack_from(">i", frame)[0]):
                    break
                pair.answer(frame)
        pair.end()


class _Pair:
    """A connection of a client and the one behind it, with what is under way on them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self._guard = threading.Lock()
        self._waiting: list[tuple[int, bytes | None]] = []  # with the answer, where it is ours
        self._lost: set[int] = set()

    def ask(self, correlation: int, *, lose: bool) -> None:
        with self._guard:
            self._waiting.append((correlation, None))
            if lose:
                self._lost.add(correlation)

    def refuse(self, correlation: int, answer: bytes) -> None:
        with self._guard:
            self._waiting.append((correlation, answer))
            self._flush()

    def is_lost(self, correlation: int) -> bool:
        with self._guard:
            return correlation in self._lost

    def answer(self, frame: bytes) -> None:
        with self._guard:
            self._waiting.pop(0)
            self.client.sendall(_sized(frame))
            self._flush()

    def end(self) -> None:
        end(self.client)
        end(self.server)

    def _flush(self) -> None:
        while self._waiting and (answer := self._waiting[0][1]) is not None:
            self._waiting.pop(0)
            self.client.sendall(_sized(answer))


def _frame(source: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(source, 4))
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return bytes(found)


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _correlation(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame, 4)[0])


def _append(frame: bytes, topic: str) -> Append | None:
    """What a request appends to the topic; None for any other request."""
    key, version = struct.unpack_from(">hh", frame)
    if key != _PRODUCE or not topic or text(topic) not in frame:
        return None
    assert version in _VERSIONS, f"librdkafka speaks version {version} of Produce"
    # A batch begins with its offset, 0; its magic byte is the 17th.
    at = frame.index(text(topic)) + len(text(topic)) + 1 + 4
    while frame[at] & 0x80:  # how long the batch is
        at += 1
    at += 1
    producer_id, epoch = struct.unpack_from(">qh", frame, at + _PRODUCER_AT)
    (sequence,) = struct.unpack_from(">i", frame, at + _BASE_SEQUENCE_AT)
    return Append(producer_id, epoch, sequence)


def _refusal(frame: bytes, topic: str) -> bytes:
    """Kafka's answer to a produce request to partition 0 of one topic: it lacks replicas."""
    partition = struct.pack(">ihqqq", 0, _NOT_ENOUGH_REPLICAS, -1, -1, -1)
    partition += varint(1) + varint(0) + b"\0"  # no record's errors, no message, no tags
    topics = varint(2) + text(topic) + varint(2) + partition + b"\0"
    return frame[4:8] + b"\0" + topics + struct.pack(">i", 0) + b"\0"


class ProxiedKafka(NamedTuple):
    """Clients of `advertised` come through `proxy` first, then through `appends`."""

    kafka: EmbeddedKafka
    proxy: TcpProxy
    appends: ProduceProxy

    @property
    def advertised(self) -> str:
        return f"{HOST}:{self.proxy.port}"


@contextmanager
def proxied_kafka(folder: Path, differences: Differences) -> Iterator[ProxiedKafka]:
    listens = free_port(HOST)
    with (
        ProduceProxy(listens) as appends,
        TcpProxy(appends.port) as proxy,
        EmbeddedKafka(
            folder, second_listener=(listens, proxy.port), differences=differences
        ) as kafka,
    ):
        yield ProxiedKafka(kafka, proxy, appends)
