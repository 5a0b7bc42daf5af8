"""The client's side of a connection: handshake, requests and their answers, what is pushed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    FeatureFlags,
    ServerError,
)
from anabranch.wire.connection import DEFAULT_LIMITS, PROTOCOL_VERSION, Connection, ConnectionLimits
from anabranch.wire.errors import (
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RequestTimeoutError,
)

_CONNECT_S_MAX: Final = 10.0

Push = Callable[[BaseCommand], None]


def _ignore(_command: BaseCommand) -> None:
    """For connections that ask for nothing that is pushed."""


class ClientConnection(Connection):
    """A connection to a node; `connect` makes it."""

    def __init__(self, on_push: Push = _ignore, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits, limits.list_bytes_max)
        self.server: CommandConnected = CommandConnected()  # what the node said of itself
        self.welcomed: asyncio.Future[None] = self._loop.create_future()
        self._on_push = on_push
        self._waiting: dict[int, asyncio.Future[BaseCommand]] = {}
        self._ids = itertools.count(1)

    async def request(self, message: Message, timeout_s: float) -> BaseCommand:
        """The node's answer; sets the message's request_id.

        Raises RefusedError when the answer is an error, RequestTimeoutError, ConnectionLostError.
        """
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is over: {self._reason}")
        if len(self._waiting) >= self.limits.requests_max:
            raise RefusedError(
                ServerError.TooManyRequests,
                f"{len(self._waiting)} requests to {self.address} wait for their answers",
            )
        number = next(self._ids)
        fields: Any = message
        fields.request_id = number
        answer: asyncio.Future[BaseCommand] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            self.send(message)
            async with asyncio.timeout(timeout_s):
                command = await answer
        except TimeoutError:
            raise RequestTimeoutError(
                f"no answer from {self.address} to {type(message).__name__} in {timeout_s:g} s"
            ) from None
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # who gave up in this very moment has not looked at it
        _raise_error(command)
        return command

    def received(self, command: BaseCommand) -> None:
        if not self.welcomed.done():
            self._welcome(command)
            return
        waiting = self._waiting.get(commands.request_id_of(command))
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(command)
        elif command.type == BaseCommand.ERROR:
            # Late, or to something that was no request.
            self._logger.warning("wire.refused", why=command.error.message)
        elif commands.lacking(command):
            self._logger.warning("wire.incomplete", lacking=commands.lacking(command))
        else:
            self._on_push(command)

    def ended(self, reason: str) -> None:
        error = ConnectionLostError(f"the connection to {self.address} ended: {reason}")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        if not self.welcomed.done():
            self.welcomed.set_exception(error)

    def _welcome(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CONNECTED and not commands.lacking(command):
            self.server = command.connected
            self.welcomed.set_result(None)
            return
        what = commands.name_of(commands.type_of(command))
        why = command.error.message if command.type == BaseCommand.ERROR else f"{what} came"
        self.close(f"it did not answer CONNECT with CONNECTED: {why}")


_ConnectionT = TypeVar("_ConnectionT", bound=ClientConnection)


async def connect(
    host: str,
    port: int,
    *,
    on_push: Push = _ignore,
    timeout_s: float = _CONNECT_S_MAX,
    client_version: str = "anabranch",
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> ClientConnection:
    """A connection on which the handshake is done. Raises ConnectError."""
    hello = CommandConnect(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        feature_flags=FeatureFlags(supports_scalable_topics=True, reads_kafka=True),
    )
    return await join(lambda: ClientConnection(on_push, limits), host, port, hello, timeout_s)


async def join(
    make: Callable[[], _ConnectionT],
    host: str,
    port: int,
    hello: CommandConnect,
    timeout_s: float = _CONNECT_S_MAX,
) -> _ConnectionT:
    """The connection that `make` makes, once the node has answered `hello`. Raises ConnectError."""
    loop = asyncio.get_running_loop()
    where = f"{host}:{port}"
    connection: _ConnectionT | None = None
    made: list[_ConnectionT] = []

    def factory() -> _ConnectionT:
        made.append(make())
        return made[-1]

    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(factory, host, port)
            connection.send(hello)
            await connection.welcomed
    except TimeoutError:
        what = "does not answer CONNECT" if connection else "cannot be reached"
        raise ConnectError(f"{where} {what} within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectError(f"{where} cannot be reached: {error.strerror or error}") from None
    except ConnectionLostError as error:
        raise ConnectError(
            f"{where} does not speak the binary protocol of a node: {error}. Give the address of "
            "a node's brokerServicePort, not one of Kafka or of HTTP"
        ) from None
    finally:
        for each in made:  # also where the time was over before it was handed out
            if not _is_welcome(each):
                each.abort("the handshake was given up")
    return connection


def _is_welcome(connection: ClientConnection) -> bool:
    done = connection.welcomed
    return done.done() and not done.cancelled() and done.exception() is None


def _raise_error(command: BaseCommand) -> None:
    """Raises RefusedError when the answer, of whichever type, says that it is an error."""
    payload = commands.payload_of(command)
    fields = payload.DESCRIPTOR.fields_by_name if payload is not None else {}
    if "error" in fields and payload.HasField("error"):
        raise RefusedError(payload.error, payload.message)
    missing = commands.lacking(command)
    if missing:
        what = commands.name_of(commands.type_of(command))
        raise RefusedError(ServerError.UnsupportedVersionError, f"{what} came without {missing}")
