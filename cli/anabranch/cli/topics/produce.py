"""`anabranch topics produce`: lines, documents or a whole file become messages."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, BinaryIO, Final, Self

import click
import msgspec

from anabranch.cli.shared.api import json_lines_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import said_as, shown
from anabranch.cli.shared.stopping import run_stoppable, unless_stopped
from anabranch.cli.topics.sdk import client_options, open_client
from anabranch.cli.topics.words import count_of, properties_of
from anabranch.client import ClientError, DeliveryResult, Producer, TopicNotFoundError
from anabranch.core.errors import InvalidInputError

_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_MAX: Final = 8
_FAILURES_TOLD: Final = 10  # one by one
_BREAK_OFF_S: Final = 1.5  # less than a Ctrl-C leaves
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024


class InputMessage(msgspec.Struct, frozen=True):
    """A message to be sent; no event time: that of sending."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    event_time_ms: int | None = None

    @classmethod
    def of_line(cls, line: bytes, key: bytes | None) -> Self:
        r"""Reads a line without its end. `key`: all lines' key; the lines are then values as they
        are.

        >>> InputMessage.of_line(b"eve\tone\ttwo", None)
        InputMessage(key=b'eve', value=b'one\ttwo', headers=(), event_time_ms=None)
        >>> InputMessage.of_line(b"a\tb", b"k").value, InputMessage.of_line(b"one", None).key
        (b'a\tb', None)
        >>> InputMessage.of_line(b"\tone", None).key
        b''
        """
        if key is not None:
            return cls(key, line)
        before, tab, after = line.partition(b"\t")
        return cls(before, after) if tab else cls(None, line)

    @classmethod
    def of_document(cls, line: bytes) -> Self:
        """Reads a document as `topics consume --json` prints it. Raises InvalidInputError.

        >>> InputMessage.of_document(b'{"key": "eve", "value": null}').value is None
        True
        """
        try:
            found = msgspec.json.decode(line, type=_Document)
            headers = [_header(each) for each in found.headers]
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                f"{error}: give a document as `anabranch topics consume --json` prints them"
            ) from None
        value = found.value
        if value is msgspec.UNSET:
            if found.value_base64 is None:
                raise InvalidInputError(
                    "a document without value or valueBase64: write null for no value"
                )
            value = None
        return cls(
            _exact(found.key, found.key_base64),
            _exact(value, found.value_base64),
            headers,
            found.event_time_ms,
        )


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    key: str | None = None
    key_base64: bytes | None = None  # msgspec decodes it
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: bytes | None = None
    headers: list[list[str | None]] = []
    event_time_ms: int | None = None


def _exact(text: str | None, data: bytes | None) -> bytes | None:
    """Returns the bytes if both are given: the text only shows them as far as it can."""
    if data is not None or text is None:
        return data
    return text.encode()


def _header(given: list[str | None]) -> tuple[str, bytes | None]:
    name, text, *data = given if len(given) in (2, 3) else (None, None)
    if name is None:
        raise msgspec.DecodeError(
            f"a header is [name, text], or [name, text, base 64 of its bytes], not {given}"
        )
    return name, _exact(text, msgspec.convert(data[0], bytes) if data else None)


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--file", "file", type=click.File("rb"), default="-", help="The input; standard input if left."
)
@click.option(
    "--from-json",
    is_flag=True,
    help="Lines are documents, as `anabranch topics consume --json` prints them.",
)
@click.option("--key", help="Key of all messages; lines are then values as they are.")
@click.option(
    "--header",
    "given",
    multiple=True,
    metavar="K=V",
    help="A header of all messages; may be repeated.",
)
@click.option("--verbose", is_flag=True, help="Print where each message is.")
@client_options
@json_lines_option
def produce(
    topic: str,
    file: BinaryIO,
    from_json: bool,
    key: str | None,
    given: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    **how: Any,
) -> int:
    """Send each line to TOPIC, as KEY<TAB>VALUE, or without a key as VALUE.

    With --from-json a line is a whole message: key, value, headers, eventTimeMs. null stands for no
    key, no value (a tombstone: {"key": "eve", "value": null}) or a header without content.
    keyBase64 and valueBase64 carry bytes that are no text. Other fields are ignored.

    Ends at the end of the input, once Kafka has all that was read. Ctrl-C gives it a moment for
    that. --json prints a document for each message, as --verbose prints a line; a key that is no
    UTF-8 is in keyBase64 too.

    Exit status 0: all are sent. 1: some, told on standard error, are not. 2: could not begin.

    Example: anabranch topics produce public/default/orders --key eve --verbose < lines.txt
    """
    headers = [pair for one in given for pair in properties_of([one], "--header").items()]
    if from_json and key is not None:
        raise click.UsageError("--from-json reads keys and values: leave --key out")
    key_bytes = None if key is None else key.encode()
    read: Callable[[bytes], InputMessage] = (
        InputMessage.of_document if from_json else partial(InputMessage.of_line, key=key_bytes)
    )
    sender = _Sender(read, headers, verbose, as_json)

    async def main(stopping: asyncio.Event) -> None:
        async with open_client(topic, **how) as client:
            sender.producer = await client.create_producer(topic)
            sender.stopping = stopping
            async for line in _lines(_chunks(file, stopping), stopping):
                await sender.send(line)
            await (sender.break_off() if stopping.is_set() else sender.producer.close())

    try:
        run_stoppable(main)
    finally:
        sender.say_what_failed()
    if sender.unheard is not None:
        raise sender.unheard
    if not (verbose or as_json):
        click.echo(f"sent {count_of(sender.sent, 'message')}")
    return ExitStatus.BAD if sender.failed else ExitStatus.DONE


class _Sender:
    """Sends lines, and says what became of each."""

    producer: Producer
    stopping: asyncio.Event  # set where nobody hears what became of them any more

    def __init__(
        self,
        read: Callable[[bytes], InputMessage],
        headers: list[tuple[str, str]],
        verbose: bool,
        as_json: bool,
    ) -> None:
        self.sent = 0
        self.failed = 0
        self.unheard: OSError | None = None  # of the first line that could not be written
        self._number = 0
        self._read = read
        self._headers = headers
        self._verbose = verbose
        self._as_json = as_json

    async def send(self, line: bytes) -> None:
        self._number += 1
        number = self._number

        def settled(result: DeliveryResult | None, error: Exception | None) -> None:
            if result is None:
                self._refused(number, error)
                return
            self.sent += 1
            if self._as_json:
                self._say(msgspec.json.encode(_document(number, said.key, result)).decode())
            elif self._verbose:
                self._say(
                    f"{number}  {shown(said.key)}  segment {result.segment_id}, bucket "
                    f"{result.bucket}, offset {result.offset}"
                )

        try:
            said = self._read(line)
            await self.producer.post(
                said.value,
                said.key,
                headers=[*said.headers, *self._headers],
                event_time_ms=said.event_time_ms,
                on_delivery=settled,
            )
        except TopicNotFoundError:
            raise
        except (ClientError, InvalidInputError) as error:
            self._refused(number, error)

    def _say(self, line: str) -> None:
        """A delivery's callback must not raise: the end of the output ends the input instead."""
        if self.unheard is not None:
            return
        try:
            click.echo(line)
        except OSError as error:
            self.unheard = error
            self.stopping.set()

    def _refused(self, number: int, error: Exception | None) -> None:
        self.failed += 1
        if self.failed <= _FAILURES_TOLD:
            click.echo(f"anabranch: line {number}: {error}", err=True)

    async def break_off(self) -> None:
        """Gives Kafka a moment to take messages under way, and tells the rest."""
        left = self.producer.under_way
        if left and self.unheard is None:
            click.echo(f"waiting for Kafka to take {count_of(left, 'message')}", err=True)
        try:
            async with asyncio.timeout(_BREAK_OFF_S):
                await self.producer.close()
        except TimeoutError:
            left = self.producer.under_way
            self.failed += left
            click.echo(
                f"anabranch: {count_of(left, 'message')} given up: Kafka may not have what was not "
                "acknowledged",
                err=True,
            )

    def say_what_failed(self) -> None:
        """Prints the number of failures if there were too many to tell of each."""
        if self.failed > _FAILURES_TOLD:
            click.echo(
                f"anabranch: {self.failed} lines are not sent, or not known to be; the first "
                f"{_FAILURES_TOLD} are named above ({self.sent} are sent)",
                err=True,
            )


def _document(number: int, key: bytes | None, result: DeliveryResult) -> dict[str, object]:
    """Named as `topics consume --json` and the REST interface name things."""
    return {
        "line": number,
        **said_as("key", key),
        "topic": result.topic,
        "segmentId": result.segment_id,
        "bucket": result.bucket,
        "offset": result.offset,
        "eventTimeMs": result.timestamp_ms,
    }


async def _chunks(file: BinaryIO, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Yields the input as it comes; a thread reads it, and nothing waits for that thread."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_MAX)

    def read() -> None:
        more = True
        while more:
            room.acquire()
            # Not by the file: its lock, held by this thread, would break the interpreter's end.
            chunk: bytes | OSError
            try:
                chunk = os.read(file.fileno(), _CHUNK_BYTES)
            except ValueError:  # the file was closed: nobody reads on
                return
            except OSError as error:  # a directory, say
                chunk = error
            more = isinstance(chunk, bytes) and len(chunk) > 0
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:  # the loop was closed: nobody reads on
                return

    threading.Thread(target=read, name="lines", daemon=True).start()
    while chunk := await unless_stopped(chunks.get(), stopping):
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk


async def _lines(chunks: AsyncIterator[bytes], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Lines without their ends."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            raise InvalidInputError(f"a line has more than {_LINE_BYTES_MAX} bytes")
        for line in whole:
            if stopping.is_set():
                return
            yield line.removesuffix(b"\r")
    if rest and not stopping.is_set():
        yield rest
