"""`PeerIdentity`: the identity of one connection's client, which shows it again when it is over.

No command of the client is taken while it is asked. Between the end of its credentials and its
answer to the challenge, it is served on under its former identity. It has the time of a hand-shake
for that answer. A client that did not say that it can answer is turned away at that end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from anabranch.core.security.principal import Principal
from anabranch.wire.anabranch_pb2 import AuthData, BaseCommand, CommandConnect, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.logging import get_logger

_REFRESH: Final = b"PulsarAuthRefresh"  # the text of a challenge to show credentials again
_DELAY_S_MAX: Final = 86_400.0  # for one timer


class AdmittedPeer(msgspec.Struct, frozen=True):
    """The principal of a connection. It counts for `seconds`, None for ever."""

    principal: Principal
    seconds: float | None = None


# Called once it is begun: a connection may be gone before that.
_Ask = Callable[[], Awaitable[AdmittedPeer]]


class Visitor(Protocol):
    """A client. `principal` is its own, NOBODY before it is admitted."""

    principal: Principal

    @property
    def host(self) -> str:
        """The client's address, without the port."""
        ...

    @property
    def certificate(self) -> dict[str, object] | None:
        """The verified certificate that it has shown to TLS, None for none."""
        ...

    def ask_anew(self) -> None:
        """Lets it show its credentials again, because the former ones may not count any more."""
        ...

    @property
    def is_open(self) -> bool: ...
    def hold(self) -> None: ...
    def go_on(self) -> None: ...
    def admitted(self, command: BaseCommand) -> None:
        """Notes that this CONNECT has admitted the client."""
        ...

    def not_admitted(self, code: ServerError, reason: str) -> None:
        """Notes that the client is not admitted: its credentials are wrong or late, or cannot be
        checked now.
        """
        ...

    def challenge(self, asked: AuthData) -> None:
        """Asks it to show its credentials again."""
        ...


class Admission(Protocol):
    """Admits clients."""

    async def admit(self, connect: CommandConnect, visitor: Visitor) -> AdmittedPeer:
        """Returns the principal of its CONNECT.
        Raises RefusedError, with the text for the client.
        """
        ...

    async def admit_again(self, shown: AuthData, visitor: Visitor) -> AdmittedPeer:
        """Returns the principal of new credentials, which must be the former one.
        Raises RefusedError.
        """
        ...


class PeerIdentity:
    """`seconds_max` is the time to answer a challenge."""

    def __init__(self, peer: Visitor, admission: Admission, seconds_max: float) -> None:
        self._peer = peer
        self._admission = admission
        self._seconds_max = seconds_max
        self._loop = asyncio.get_running_loop()
        self._logger = get_logger(__name__)
        self._can_show_anew = False
        self._admitting: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._challenged: asyncio.TimerHandle | None = None  # until it has to have answered

    def begin(self, command: BaseCommand) -> None:
        """Notes its CONNECT. The time for its greeting runs on."""
        connect = command.connect
        self._can_show_anew = connect.feature_flags.supports_auth_refresh
        self._start(lambda: self._admission.admit(connect, self._peer), command)

    def answered(self, shown: AuthData) -> bool:
        """Looks at credentials if they were asked for. Returns True if so."""
        if self._challenged is None:
            return False
        self._start(lambda: self._admission.admit_again(shown, self._peer))
        return True

    @property
    def is_looked_at(self) -> bool:
        """True while it has shown credentials and has not been told the result."""
        return self._admitting is not None and not self._admitting.done()

    def end(self) -> None:
        """Notes that the connection is gone."""
        for timer in (self._expiry, self._challenged):
            if timer is not None:
                timer.cancel()
        if self._admitting is not None:
            self._admitting.cancel()

    def _start(self, ask: _Ask, connect: BaseCommand | None = None) -> None:
        self._peer.hold()
        self._admitting = asyncio.create_task(self._admit(ask, connect))

    async def _admit(self, ask: _Ask, connect: BaseCommand | None) -> None:
        try:
            found = await ask()
        except RefusedError as error:
            self._peer.not_admitted(error.code, error.reason)
        except Exception as error:
            self._logger.error("wire.fault", command="CONNECT", exc_info=error)
            self._peer.not_admitted(
                ServerError.UnknownError,
                f"a fault in the node, {type(error).__name__}; its log says where",
            )
        else:
            if self._peer.is_open:
                self._is(found)
                if connect is not None:
                    self._peer.admitted(connect)
                self._peer.go_on()

    def _is(self, found: AdmittedPeer) -> None:
        if self._challenged is not None:
            self._challenged.cancel()
            self._challenged = None
        if self._expiry is not None:
            self._expiry.cancel()  # it was asked before that
        self._peer.principal = found.principal
        if found.seconds is not None:
            self._expire_at(self._loop.time() + found.seconds)

    def _expire_at(self, due: float) -> None:
        at = min(due, self._loop.time() + _DELAY_S_MAX)
        self._expiry = self._loop.call_at(at, self._expired, due)

    def _expired(self, due: float) -> None:
        if due > self._loop.time():
            self._expire_at(due)
        else:
            self._ask("what you have shown has expired: connect again with what has not")

    def ask_anew(self) -> None:
        """Asks again, because the former credentials may not count any more, for example after a
        change of keys.
        """
        if self._peer.principal.role and self._peer.is_open:
            self._ask("who may connect has changed: connect again with what counts now")

    def _ask(self, otherwise: str) -> None:
        """Asks for credentials. `otherwise` is the text for a client that cannot be asked."""
        if self._challenged is not None:
            return
        if not self._can_show_anew:
            self._peer.not_admitted(ServerError.AuthenticationError, otherwise)
        else:
            asked = AuthData(auth_method_name=self._peer.principal.method, auth_data=_REFRESH)
            self._challenged = self._loop.call_later(self._seconds_max, self._not_answered)
            self._peer.challenge(asked)

    def _not_answered(self) -> None:
        self._peer.not_admitted(
            ServerError.AuthenticationError,
            "what you have shown counts no more, and nothing was shown anew within "
            f"{self._seconds_max:g} s",
        )
