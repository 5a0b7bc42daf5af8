"""One asyncio connection to a broker of Kafka, with many questions under way at once."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Final, cast

from anabranch.wire.kafka.producing import Buffer
from anabranch.wire.kafka.protocol import (
    ANSWER_BYTES_MAX,
    NO_TAGS,
    KafkaProtocolError,
    ResponseReader,
)
from anabranch.wire.sockets import shut_down

_HEAD_BYTES: Final = 4  # a frame begins with the number of bytes that follow
_NUMBER_BYTES: Final = 4  # then comes the number of the question
_NUMBERS: Final = 2**31
_NO_KAFKA: Final = "it does not speak Kafka's protocol"


class LinkLostError(ConnectionError):
    """A question to a broker has no answer, because there is no connection any more, or was none.

    `was_written` is True if the broker may have received the question. Otherwise it has done
    nothing.
    """

    def __init__(self, reason: str, *, was_written: bool) -> None:
        super().__init__(reason)
        self.was_written = was_written


class Question:
    """A request, and its answer once that is there."""

    __slots__ = ("_api", "_body", "_is_flexible", "_version", "answer", "pipeline", "timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        api: int,
        version: int,
        body: Sequence[Buffer],
        *,
        is_flexible: bool = True,
    ) -> None:
        self.answer: asyncio.Future[ResponseReader] = loop.create_future()
        self.pipeline: Pipeline | None = None  # once it is written
        self.timer: asyncio.TimerHandle | None = None
        self._api = api
        self._version = version
        self._body = body
        self._is_flexible = is_flexible

    def frame(self, number: int, client_id: bytes) -> list[Buffer]:
        """Returns the frame in parts, without a copy of the body."""
        head = struct.pack(">hhih", self._api, self._version, number, len(client_id)) + client_id
        if self._is_flexible:
            head += NO_TAGS
        size = len(head) + sum(map(len, self._body))
        return [struct.pack(">i", size) + head, *self._body]

    def answered(self, reader: ResponseReader) -> None:
        """Takes the answer. Raises KafkaProtocolError if its head is cut short."""
        if self._is_flexible:
            reader.tags()
        self._end()
        if not self.answer.done():  # else nobody waits for it any more
            self.answer.set_result(reader)

    def lost(self, why: str) -> None:
        """Fails it, because there is no connection to answer it."""
        self.failed(LinkLostError(why, was_written=self.pipeline is not None))

    def failed(self, error: Exception) -> None:
        """Fails it, because there will be no answer."""
        self._end()
        if not self.answer.done():
            self.answer.set_exception(error)

    def _end(self) -> None:
        self._body = ()
        if self.timer is not None:
            self.timer.cancel()


class Pipeline(asyncio.Protocol):
    """A connection to the broker called `name`, from its beginning to its end.

    It calls `on_end` once, with the reason and the number of questions without answers.
    """

    def __init__(
        self, name: str, client_id: str, on_end: Callable[[Pipeline, str, int], None]
    ) -> None:
        self.is_open = False
        self.has_answered = False
        self.expires_at: float | None = None  # the loop's time from which it takes no question
        self._name = name
        self._client_id = client_id.encode()
        self._on_end: Callable[[Pipeline, str, int], None] | None = on_end
        self._transport: asyncio.Transport | None = None
        self._why = "the connection is ending"
        self._buffer = bytearray()
        self._number = 0
        self._awaited: dict[int, Question] = {}
        self._emptied: asyncio.Future[None] | None = None

    def send(self, question: Question) -> None:
        """Writes a question, or fails it without a connection. Questions go out in this order."""
        transport = self._transport
        if not self.is_open or transport is None or transport.is_closing():
            question.lost(f"{self._name}: {self._why}")
            return
        self._number = number = (self._number + 1) % _NUMBERS
        self._awaited[number] = question
        question.pipeline = self
        transport.writelines(question.frame(number, self._client_id))

    async def emptied(self) -> None:
        """Returns once no question waits for its answer."""
        while self._awaited:
            if self._emptied is None or self._emptied.done():
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def abort(self, why: str) -> None:
        """Ends it at once. May be called again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._ended(why)

    def cut(self) -> None:
        """Tells the broker of the end after the event loop is over."""
        shut_down(self._transport)
        self._on_end = None
        self._awaited.clear()
        with warnings.catch_warnings():  # a transport can be closed by its loop alone
            warnings.simplefilter("ignore", ResourceWarning)
            self._transport = None

    # --- asyncio.Protocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No subclass in uvloop, which has the methods all the same.
        self._transport = stream = cast(asyncio.Transport, transport)
        self.is_open = True
        held = stream.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while self.is_open and len(buffer) - at >= _HEAD_BYTES:
            begin = at + _HEAD_BYTES
            size = int.from_bytes(buffer[at:begin], "big", signed=True)
            if not _NUMBER_BYTES <= size <= ANSWER_BYTES_MAX:
                self.abort(_NO_KAFKA)
            elif len(buffer) < begin + size:
                break
            else:
                at = begin + size
                self._take(bytes(buffer[begin:at]))
        del buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ended(words_of(exc) if exc is not None else "Kafka closed the connection")

    # --- inside -------------------------------------------------------------------------

    def _take(self, frame: bytes) -> None:
        reader = ResponseReader(frame)
        (number,) = reader.unpack(">i")
        question = self._awaited.pop(number, None)
        if question is None:
            self.abort(_NO_KAFKA)
            return
        try:
            question.answered(reader)
        except KafkaProtocolError as error:
            self._awaited[number] = question
            self.abort(str(error))
            return
        self.has_answered = True
        self._look()

    def _ended(self, why: str) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        self.is_open = False
        self._why = why
        lost, self._awaited = self._awaited, {}
        for question in lost.values():
            question.lost(f"{self._name}: {why}")
        self._look()
        on_end(self, why, len(lost))

    def _look(self) -> None:
        if not self._awaited and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)


def words_of(error: BaseException) -> str:
    """Returns the error in words for people.

    >>> words_of(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"))
    'connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. Name the file of the "
            "authority that has signed it (ssl.ca.location), and the broker as its certificate does"
        )
    if isinstance(error, OSError) and error.errno is not None:
        # Those of TLS and of names have numbers of their own.
        is_of_system = type(error).__module__ == "builtins" and error.errno > 0
        return os.strerror(error.errno).lower() if is_of_system else str(error.strerror or error)
    return str(error) or type(error).__name__
