"""The client's side of a connection: handshake, requests and their answers, pushed commands."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from anabranch.access import Credentials, CredentialsError, TlsFiles
from anabranch.access.credentials import NOTHING_SHOWN
from anabranch.access.tls import reason_of
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    FeatureFlags,
    ServerError,
)
from anabranch.wire.connection import DEFAULT_LIMITS, PROTOCOL_VERSION, Connection, ConnectionLimits
from anabranch.wire.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RequestTimeoutError,
    TlsError,
    TurnedAwayError,
)
from anabranch.wire.shared_reads import SharedReads
from anabranch.wire.supervised import supervised

CLIENT_VERSION: Final = "anabranch"
_CONNECT_S_MAX: Final = 10.0
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # a socket lingers for no time, and ends by a reset
# A node that takes nobody now, or not whoever asks, who may come again.
_PASSING: Final = frozenset((ServerError.TooManyRequests, ServerError.ServiceNotReady))

Push = Callable[[BaseCommand], None]


def _ignore(_command: BaseCommand) -> None:
    """Ignores pushed commands, for connections that ask for none."""


class ClientConnection(Connection):
    """A connection to a node. `connect` makes it."""

    def __init__(self, on_push: Push = _ignore, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits, limits.list_bytes_max)
        self.server: CommandConnected = CommandConnected()  # the node's words of itself
        self.welcomed: asyncio.Future[None] = self._loop.create_future()
        self.credentials: Credentials | None = None  # shown when the node asks again
        self.loss: Exception | None = None  # the error that ended it, if one did
        self._showing: asyncio.Task[None] | None = None
        self._on_push = on_push
        self._waiting: dict[int, asyncio.Future[BaseCommand]] = {}
        self._ids = itertools.count(1)

    def reads(self) -> asyncio.BaseProtocol:
        """Returns the protocol that takes received bytes from the event loop."""
        return SharedReads(self)

    async def request(self, message: Message, timeout_s: float) -> BaseCommand:
        """Sends a request and returns the node's answer. It sets the message's request_id.

        Raises RefusedError if the answer is an error, RequestTimeoutError after `timeout_s`
        seconds, ConnectionLostError.
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
                answer.exception()  # a caller that gave up in this moment has not looked at it
            del answer  # or it, its error and this frame were a circle
        _raise_error(command)
        return command

    def received(self, command: BaseCommand) -> None:
        if not self.welcomed.done():
            self._welcome(command)
            return
        if command.type == BaseCommand.AUTH_CHALLENGE:
            self._challenged()
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

    def abort(self, why: str) -> None:
        """Ends it by a reset, because the other side takes any other end for that of
        this process.
        """
        held = self._transport.get_extra_info("socket") if self._transport is not None else None
        if held is not None and held.fileno() >= 0:
            # The socket that uvloop hands out sets nothing, so this is one of its own.
            with socket.socket(fileno=os.dup(held.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        super().abort(why)

    def connection_lost(self, exc: Exception | None) -> None:
        self.loss = exc
        super().connection_lost(exc)

    def ended(self, reason: str) -> None:
        if self._showing is not None:
            self._showing.cancel()
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
        if command.type == BaseCommand.ERROR and (
            command.error.error == ServerError.AuthenticationError
        ):
            why = command.error.message
            self.welcomed.set_exception(AuthenticationError(why))
            self.close(f"it was not let in: {why}")
            return
        if command.type == BaseCommand.ERROR and command.error.error in _PASSING:
            turned = TurnedAwayError(command.error.error, command.error.message)
            self.welcomed.set_exception(turned)
            self.close(f"it was turned away: {command.error.message}")
            return
        what = commands.name_of(commands.type_of(command))
        why = command.error.message if command.type == BaseCommand.ERROR else f"{what} came"
        self.close(f"it did not answer CONNECT with CONNECTED: {why}")

    def _challenged(self) -> None:
        """Shows the credentials again, because the former ones are over. Only another connection
        can show a certificate again.
        """
        if self.credentials is None:
            self.abort("what it has shown has expired, and it has nothing to show anew")
        elif self._showing is None or self._showing.done():
            self._showing = supervised(self._show_anew(self.credentials), "show anew")

    async def _show_anew(self, credentials: Credentials) -> None:
        try:
            shown = await credentials.show()
        except CredentialsError as error:
            self._logger.warning("wire.nothing_to_show", why=str(error))
            self.abort(f"what it has shown has expired: {error}")
            return
        self.send(
            CommandAuthResponse(
                client_version=CLIENT_VERSION,
                response=AuthData(auth_method_name=credentials.method, auth_data=shown),
                protocol_version=PROTOCOL_VERSION,
            )
        )


_ConnectionT = TypeVar("_ConnectionT", bound=ClientConnection)


async def connect(
    host: str,
    port: int,
    *,
    on_push: Push = _ignore,
    timeout_s: float = _CONNECT_S_MAX,
    client_version: str = CLIENT_VERSION,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    tls: TlsFiles | None = None,
    credentials: Credentials | None = None,
) -> ClientConnection:
    """Returns a connection after its handshake. Raises the errors of `join`."""
    hello = CommandConnect(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        feature_flags=FeatureFlags(
            supports_scalable_topics=True,
            reads_kafka=True,
            resets=True,
        ),
    )
    return await join(
        lambda: ClientConnection(on_push, limits), host, port, hello, timeout_s, tls, credentials
    )


async def join(
    make: Callable[[], _ConnectionT],
    host: str,
    port: int,
    hello: CommandConnect,
    timeout_s: float = _CONNECT_S_MAX,
    tls: TlsFiles | None = None,
    credentials: Credentials | None = None,
) -> _ConnectionT:
    """Returns the connection of `make`, once the node has answered `hello`.

    Without `tls` it is not encrypted. It shows `credentials` in `hello`, and when the node asks
    again. If the node refuses outdated ones, it shows the present ones at once. Raises ConnectError
    (TlsError for a wrong certificate), AuthenticationError, and CredentialsError if there is
    nothing to show.
    """
    shown = await _show(credentials, hello, f"{host}:{port}", timeout_s)
    try:
        return await _joined(make, host, port, hello, timeout_s, tls, credentials)
    except AuthenticationError:
        if credentials is None or not credentials.is_renewable:
            raise
        if await _show(credentials, hello, f"{host}:{port}", timeout_s) == shown:
            raise
    return await _joined(make, host, port, hello, timeout_s, tls, credentials)


async def _show(
    credentials: Credentials | None, hello: CommandConnect, where: str, timeout_s: float
) -> bytes:
    """Puts the present credentials into `hello`, and returns them. Raises CredentialsError."""
    if credentials is None:
        return b""
    try:
        async with asyncio.timeout(timeout_s):
            shown = await credentials.show()
    except TimeoutError:
        raise CredentialsError(
            f"what is to be shown to {where} was not there within {timeout_s:g} s; whoever makes "
            "it has to be quicker"
        ) from None
    hello.auth_method_name, hello.auth_data = credentials.method, shown
    hello.feature_flags.supports_auth_refresh = True
    return shown


async def _joined(
    make: Callable[[], _ConnectionT],
    host: str,
    port: int,
    hello: CommandConnect,
    timeout_s: float,
    tls: TlsFiles | None,
    credentials: Credentials | None,
) -> _ConnectionT:
    """Tries once to join."""
    loop = asyncio.get_running_loop()
    where = f"{host}:{port}"
    connection: _ConnectionT | None = None
    made: list[_ConnectionT] = []
    welcome: _ConnectionT | None = None

    def factory() -> asyncio.BaseProtocol:
        made.append(make())
        made[-1].credentials = credentials  # may be asked for as soon as it is welcome
        return made[-1].reads()

    try:
        async with asyncio.timeout(timeout_s):
            if tls is None:
                await loop.create_connection(factory, host, port)
            else:
                await loop.create_connection(
                    factory, host, port, ssl=tls.context(), server_hostname=host
                )
            connection = made[-1]
            connection.send(hello)
            await connection.welcomed
        welcome = connection
    except TimeoutError:
        what = "does not answer CONNECT" if connection else "cannot be reached"
        raise ConnectError(f"{where} {what} within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise TlsError(f"{where} cannot be reached by TLS: {reason_of(error, host)}") from None
    except OSError as error:
        raise ConnectError(f"{where} cannot be reached: {error.strerror or error}") from None
    except AuthenticationError as error:
        remedy = credentials.renewal if credentials is not None else NOTHING_SHOWN
        raise AuthenticationError(f"{where} does not let us in: {error}. {remedy}") from None
    except TurnedAwayError as error:
        raise TurnedAwayError(error.code, f"{where} turns us away: {error}") from None
    except ConnectionLostError as error:
        raise _no_node(where, host, error, connection, tls) from None
    finally:
        for each in made:  # a caller that is cancelled at the welcome would never close it
            if each is not welcome:
                each.welcomed.cancel()  # an error there would stay unseen
                each.abort("the handshake was given up")
    return welcome


def _no_node(
    where: str,
    host: str,
    error: ConnectionLostError,
    connection: ClientConnection | None,
    tls: TlsFiles | None,
) -> ConnectError:
    """Returns the reason why an opened connection is of no use."""
    loss = connection.loss if connection is not None else None
    if isinstance(loss, ssl.SSLError):
        return TlsError(f"{where} cannot be reached by TLS: {reason_of(loss, host)}")
    if tls is not None:  # a client of TLS 1.3 is through before a look at its certificate
        return ConnectError(
            f"{where} does not go on after the hand-shake of TLS: {error}. Is it a node's "
            "brokerServicePortTls, and if it asks for a certificate, is one shown that it trusts?"
        )
    return ConnectError(
        f"{where} does not speak the binary protocol of a node: {error}. Give the address of a "
        "node's brokerServicePort, or of its brokerServicePortTls with pulsar+ssl://, not one of "
        "Kafka or of HTTP"
    )


def _raise_error(command: BaseCommand) -> None:
    """Raises RefusedError if the answer, of any type, is an error."""
    payload = commands.payload_of(command)
    fields = payload.DESCRIPTOR.fields_by_name if payload is not None else {}
    if "error" in fields and payload.HasField("error"):
        raise RefusedError(payload.error, payload.message)
    missing = commands.lacking(command)
    if missing:
        what = commands.name_of(commands.type_of(command))
        raise RefusedError(ServerError.UnsupportedVersionError, f"{what} came without {missing}")
