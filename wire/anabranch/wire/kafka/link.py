"""The link of a client to a broker of Kafka: one connection on asyncio, made again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from anabranch.wire.kafka import sasl
from anabranch.wire.kafka.metadata import (
    METADATA,
    METADATA_VERSION,
    KafkaMetadata,
    metadata_request,
    read_metadata,
)
from anabranch.wire.kafka.pipeline import LinkLostError, Pipeline, Question, words_of
from anabranch.wire.kafka.producing import (
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_VERSION,
    Buffer,
    producer_id_request,
    read_producer_id,
)
from anabranch.wire.kafka.protocol import (
    AUTHENTICATE,
    AUTHENTICATE_VERSION,
    HANDSHAKE,
    HANDSHAKE_VERSION,
    Address,
    KafkaProtocolError,
    ResponseReader,
    authenticate_request,
    bootstrap_addresses,
    check_handshake,
    handshake_request,
    not_let_in,
    read_authenticated,
    speaks_tls,
    ssl_context,
)
from anabranch.wire.supervised import supervised

__all__ = ["CLIENT_ID", "KafkaLink", "KafkaLinks", "LinkLostError", "LinkSecurity"]

_T = TypeVar("_T")

CLIENT_ID: Final = "anabranch-producer"
CONNECT_S_MAX: Final = 5.0
_AGAIN_S: Final = 0.02  # after the first failure in a row; twice as long after each other one
_AGAIN_S_MAX: Final = 0.5
_OF_LIFETIME: Final = 0.85  # the used part of Kafka's time; the rest is for questions under way
_GONE: Final = "the client was closed"


class LinkSecurity:
    """The credentials and the trust of a client's links."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self.kafka = kafka
        self.client_id = str(kafka.get("client.id", CLIENT_ID))
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    async def context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, made once, because that reads files. None means no TLS.
        Raises OSError.
        """
        if self._context is None and speaks_tls(self.kafka):
            await asyncio.to_thread(self._make)
        return self._context

    def _make(self) -> None:
        with self._lock:
            if self._context is None:
                self._context = ssl_context(self.kafka)


class KafkaLink:
    """The link to one broker. Use it on one event loop at a time.

    It connects at the first question, and again for the next one after its connection has ended. It
    does not bound the written bytes. Its user bounds the questions under way. `security` has
    properties that `can_ask` accepts, and other links may share it.
    """

    def __init__(self, address: Address, security: LinkSecurity) -> None:
        self.address = address
        self.last_trouble = ""  # the last failure, in words
        self.trouble_at = 0.0  # the time of time.monotonic
        self._name = f"{address[0]}:{address[1]}"
        self._security = security
        self._loop: asyncio.AbstractEventLoop | None = None
        # A pipeline takes all that is asked. Without one, questions wait, and a task opens one.
        self._pipeline: Pipeline | None = None
        self._waiting: deque[Question] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._retired: Pipeline | None = None  # it only waits for its last answers
        self._failures = 0  # in a row
        self._not_before = 0.0  # the time of the loop's clock
        self._is_closed = False

    async def connect(self, timeout_s: float) -> None:
        """Connects by a question about nothing.
        It raises nothing, because the next question will.
        """
        with contextlib.suppress(OSError, KafkaProtocolError):
            await self.send(METADATA, METADATA_VERSION, metadata_request(()), timeout_s)

    def send(
        self, api: int, version: int, body: bytes | Sequence[Buffer], timeout_s: float
    ) -> asyncio.Future[ResponseReader]:
        """Asks a "flexible" request at once, in the order of calls. Returns the answer to come.

        The answer raises LinkLostError if the connection ends before or cannot be made. It does so
        too if nothing has come in `timeout_s`. That ends the connection for all, because a late
        answer would hold up the others. It raises KafkaProtocolError if Kafka does not let the
        client in. Cancelling it leaves the others alone. Do not change the parts of a body until
        then.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._end("its event loop is over")
            self._loop = loop
        question = Question(loop, api, version, (body,) if isinstance(body, bytes) else body)
        if self._is_closed:
            question.lost(f"{self._name}: {_GONE}")
            return question.answer
        question.timer = loop.call_later(timeout_s, self._late, question, timeout_s)
        pipeline = self._taking(loop)
        if pipeline is not None:
            pipeline.send(question)
        else:
            self._waiting.append(question)
            if self._opening is None or self._opening.done():
                self._opening = supervised(self._open(loop), f"Kafka {self._name}")
        return question.answer

    def close(self) -> None:
        """Ends the connection, and fails the waiting questions. It may be called again.

        Call it on the loop of the link, or after that loop has ended.
        """
        self._is_closed = True
        self._end(_GONE)

    def _end(self, why: str) -> None:
        loop, opening = self._loop, self._opening
        pipelines = [each for each in (self._pipeline, self._retired) if each is not None]
        self._loop = self._opening = self._pipeline = self._retired = None
        if loop is None:
            return
        if loop.is_closed():
            self._waiting.clear()
            for each in pipelines:
                each.cut()
            return
        if opening is not None:
            opening.cancel()
        self._fail_waiting(lambda: LinkLostError(f"{self._name}: {why}", was_written=False))
        for each in pipelines:
            each.abort(why)

    def _taking(self, loop: asyncio.AbstractEventLoop) -> Pipeline | None:
        """Returns the pipeline that takes a question now."""
        pipeline = self._pipeline
        if pipeline is None:
            return None
        if pipeline.expires_at is None or loop.time() < pipeline.expires_at:
            return pipeline
        self._pipeline, self._retired = None, pipeline
        return None

    def _late(self, question: Question, timeout_s: float) -> None:
        if question.pipeline is not None:
            question.pipeline.abort(f"no answer within {timeout_s:g} s")
        elif not question.answer.done():
            trouble = self.last_trouble or f"{self._name}: not connected yet"
            question.lost(f"{trouble}; nothing else came of it within {timeout_s:g} s")

    # --- connecting ---------------------------------------------------------------------

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Opens a pipeline and sends the waiting questions, or fails all of them."""
        why = f"{self._name}: {_GONE}"
        try:
            await self._turn(loop)
            pipeline = await self._joined(loop)
        except KafkaProtocolError as error:
            why = str(error)
            self._failed(loop, why)
            self._fail_waiting(lambda: KafkaProtocolError(why))
        except (OSError, UnicodeError) as error:  # the latter for an impossible name
            is_told = isinstance(error, LinkLostError)  # it names the broker
            why = str(error) if is_told else f"{self._name}: {words_of(error)}"
            self._failed(loop, why)
        except Exception as error:
            why = f"{self._name}: {type(error).__name__}: {error}"
            self._failed(loop, why)
            raise
        else:
            self._pipeline = pipeline
            while self._waiting:
                question = self._waiting.popleft()
                if not question.answer.done():
                    pipeline.send(question)
        finally:
            if self._opening is asyncio.current_task():
                self._opening = None
                self._fail_waiting(lambda: LinkLostError(why, was_written=False))

    async def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Returns when it is time to connect.

        All earlier questions have their answers by then, because nothing may overtake them on
        another connection.
        """
        if self._retired is not None:
            await self._retired.emptied()
            self._retired.abort("the time that Kafka grants is over")
            self._retired = None
        pause_s = self._not_before - loop.time()
        if self._failures and pause_s > 0:
            await asyncio.sleep(pause_s)

    async def _joined(self, loop: asyncio.AbstractEventLoop) -> Pipeline:
        """Returns a new pipeline that takes questions. Raises OSError or KafkaProtocolError."""
        host, port = self.address
        made: list[Pipeline] = []
        joined: Pipeline | None = None

        def factory() -> Pipeline:
            made.append(Pipeline(self._name, self._security.client_id, self._ended))
            return made[-1]

        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                context = await self._security.context()
                name = None if context is None else host
                await loop.create_connection(factory, host, port, ssl=context, server_hostname=name)
                await self._log_in(loop, made[-1])
            if not made[-1].is_open:  # since the last word of the login
                raise ConnectionResetError("Kafka closed the connection")
            joined = made[-1]
            joined.has_answered = False  # a question
        except TimeoutError as error:
            if error.errno is not None:  # the system's own, not ours
                raise
            raise TimeoutError(f"no connection within {CONNECT_S_MAX:g} s") from None
        finally:
            for each in made:
                if each is not joined:
                    each.abort("given up")
        return joined

    async def _log_in(self, loop: asyncio.AbstractEventLoop, pipeline: Pipeline) -> None:
        """Logs in, if SASL guards Kafka."""
        kafka = self._security.kafka
        if not sasl.is_guarded(kafka):
            return

        async def ask(api: int, version: int, body: bytes, is_flexible: bool) -> ResponseReader:
            question = Question(loop, api, version, (body,), is_flexible=is_flexible)
            pipeline.send(question)
            return await question.answer

        try:
            offered = handshake_request(kafka)
            check_handshake(await ask(HANDSHAKE, HANDSHAKE_VERSION, offered, False), kafka)
            talk = sasl.conversation(kafka)
            lifetime_ms = 0
            words = await asyncio.to_thread(sasl.said, talk)
            while words is not None:
                said = authenticate_request(words)
                told = read_authenticated(await ask(AUTHENTICATE, AUTHENTICATE_VERSION, said, True))
                lifetime_ms = told.lifetime_ms
                words = await asyncio.to_thread(sasl.said, talk, told.answer)
        except sasl.SaslError as error:
            raise not_let_in(self.address, kafka, str(error)) from None
        if lifetime_ms > 0:
            pipeline.expires_at = loop.time() + _OF_LIFETIME * lifetime_ms / 1_000

    # --- failures -----------------------------------------------------------------------

    def _ended(self, pipeline: Pipeline, why: str, lost: int) -> None:
        if lost:
            self._told(f"{self._name}: {why}")
        if pipeline is self._pipeline:
            self._pipeline = None
            if pipeline.has_answered:
                self._failures = 0
            elif self._loop is not None:
                self._failed(self._loop, f"{self._name}: {why}")

    def _failed(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        self._told(why)
        pause_s = min(_AGAIN_S_MAX, _AGAIN_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._not_before = loop.time() + pause_s

    def _told(self, why: str) -> None:
        self.last_trouble = why
        self.trouble_at = time.monotonic()

    def _fail_waiting(self, error: Callable[[], Exception]) -> None:
        while self._waiting:
            self._waiting.popleft().failed(error())


class KafkaLinks:
    """The links of one client to the brokers of one Kafka. Use it on one event loop at a time.

    Questions for any broker go over a link of their own. Kafka answers the questions of a
    connection one after the other, and records may wait there for copies.
    """

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap_addresses(bootstrap_servers)
        self._in_turn = list(self._bootstrap)  # first the one that answered last
        self._security = LinkSecurity(kafka)
        self._links: dict[Address, KafkaLink] = {}
        self._asked: dict[Address, KafkaLink] = {}
        self._is_closed = False

    @property
    def kafka(self) -> Mapping[str, Any]:
        """The security properties."""
        return self._security.kafka

    @property
    def trouble(self) -> str:
        """Returns the newest failure of a link, in words, "" for none."""
        links = [*self._links.values(), *self._asked.values()]
        return max(((each.trouble_at, each.last_trouble) for each in links), default=(0.0, ""))[1]

    def link(self, address: Address) -> KafkaLink:
        """Returns the link to the broker there, and keeps it."""
        return self._kept(self._links, address)

    async def metadata(self, topics: Iterable[str], timeout_s: float) -> KafkaMetadata:
        """Returns the metadata of these topics from the first broker that answers.

        Raises OSError or KafkaProtocolError if none does.
        """
        question = metadata_request(topics)
        told = await self._any(METADATA, METADATA_VERSION, question, read_metadata, timeout_s)
        self._learn(told.brokers.values())
        return told

    async def producer_id(self, timeout_s: float) -> tuple[int, int]:
        """Returns a new producer id, and its epoch.

        Raises OSError or KafkaProtocolError. It raises KafkaNotYetError if the caller should ask
        again.
        """
        question = producer_id_request()
        api, version = INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION
        return await self._any(api, version, question, read_producer_id, timeout_s)

    async def ask(
        self,
        address: Address | None,
        call: tuple[int, int],
        body: bytes,
        read: Callable[[ResponseReader], _T],
        timeout_s: float,
    ) -> _T:
        """Returns what `read` decodes of the answer of the broker there, or else of any broker.

        `call`: a request's number and version. Raises OSError or KafkaProtocolError.
        """
        if address is None:
            return await self._any(*call, body, read, timeout_s)
        return read(await self._kept(self._asked, address).send(*call, body, timeout_s))

    def close(self) -> None:
        """Closes all links, as `KafkaLink.close` does."""
        self._is_closed = True
        for each in (*self._links.values(), *self._asked.values()):
            each.close()

    def _kept(self, links: dict[Address, KafkaLink], address: Address) -> KafkaLink:
        link = links.get(address)
        if link is None:
            link = links[address] = KafkaLink(address, self._security)
            if self._is_closed:
                link.close()
        return link

    async def _any(
        self,
        api: int,
        version: int,
        body: bytes,
        read: Callable[[ResponseReader], _T],
        timeout_s: float,
    ) -> _T:
        """Returns the first answer that `read` decodes.
        A broker that is passed over comes last from now on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        failures: list[Exception] = []
        addresses = list(self._in_turn)
        for tried, address in enumerate(addresses):
            # So that each gets its turn.
            left_s = max(0.0, deadline - loop.time()) / (len(addresses) - tried)
            try:
                link = self._kept(self._asked, address)
                return read(await link.send(api, version, body, left_s))
            except (OSError, KafkaProtocolError) as error:
                failures.append(error)
                if address in self._in_turn:
                    self._in_turn.remove(address)
                    self._in_turn.append(address)
        if not failures:
            raise KafkaProtocolError("bootstrap.servers names no broker of Kafka: give host:port")
        failures.sort(key=lambda each: isinstance(each, KafkaProtocolError))
        raise failures.pop()  # Kafka's own error, if there is one

    def _learn(self, brokers: Iterable[Address]) -> None:
        """Adds these brokers to the ones to ask, and drops all others but those it began with."""
        there = {*brokers, *self._bootstrap}
        kept = [each for each in self._in_turn if each in there]
        self._in_turn = kept + sorted(there.difference(kept))
        for address in [each for each in self._asked if each not in there]:
            self._asked.pop(address).close()
