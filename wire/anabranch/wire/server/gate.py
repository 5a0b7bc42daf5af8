"""`Gate`: counts the resources that clients of a binary port use up, and refuses and logs excess.

`core.strangers` has the rules. This module has the words with the settings' names, and the
judgement of memory: at most one in a turn of the event loop, after a look at the really unsent
bytes.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.strangers import AccountLimits, PortAccount, PortRefusal, stranger_of
from anabranch.wire.anabranch_pb2 import ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.logging import get_logger

_SILENT_S: Final = 10.0  # after a refusal of one kind was logged
_CODES: Final = {  # TooManyRequests for what is too much
    PortRefusal.HANDSHAKE: ServerError.NotAllowedError,
    PortRefusal.IDLE: ServerError.ServiceNotReady,
    PortRefusal.FRAME_SIZE: ServerError.NotAllowedError,
    PortRefusal.FRAME_TIME: ServerError.NotAllowedError,
    PortRefusal.MALFORMED: ServerError.NotAllowedError,
    PortRefusal.AUTHENTICATION: ServerError.AuthenticationError,
    PortRefusal.REVOKED: ServerError.AuthorizationError,
}


class Guest(Protocol):
    """A client, from the view of the gate."""

    @property
    def host(self) -> str:
        """The client's address, without the port."""

    @property
    def memory(self) -> int:
        """The bytes that are kept for it now: sent and not taken, or asked and not served."""

    def turn_away(self, refusal: PortRefusal, reason: str) -> None:
        """Ends its connection, with a word if it can hear one."""

    def __hash__(self) -> int: ...


class Gate:
    """The gate of one port."""

    def __init__(self, limits: AccountLimits) -> None:
        self.counts: dict[PortRefusal, int] = dict.fromkeys(PortRefusal, 0)
        self.account: PortAccount[Guest] = PortAccount(limits)
        self._keeps: set[Guest] = set()  # for whom anything was kept when it was looked
        self._touched: set[Guest] = set()  # for whom that may have changed in this turn
        self._loop = asyncio.get_running_loop()
        self._logged = LogRateLimit(_SILENT_S)
        self._logger = get_logger(__name__)

    @property
    def memory(self) -> int:
        """The bytes that are kept for all clients now."""
        self._look()
        return self.account.memory

    def joined(self, guest: Guest) -> None:
        """Notes that a client has connected."""
        found = self.account.join(guest, stranger_of(guest.host))
        if found.gives_way is not None:
            found.gives_way.turn_away(PortRefusal.CONNECTIONS, self.words(PortRefusal.CONNECTIONS))
        if found.refusal is not None:
            guest.turn_away(found.refusal, self.words(found.refusal))

    def left(self, guest: Guest) -> None:
        """Notes that a client is gone."""
        self.account.leave(guest)
        self._keeps.discard(guest)
        self._touched.discard(guest)

    def open_watch(self, guest: Guest) -> None:
        """Counts one more watch of a client. Raises RefusedError."""
        refusal = self.account.open_watch(guest)
        if refusal is not None:
            reason = self.words(refusal)
            self.note(refusal, guest, reason)
            raise RefusedError(code_of(refusal), reason)

    def touch(self, guest: Guest) -> None:
        """Notes that a client's memory may have changed. The gate looks at it when this turn is
        over.

        It ignores a client that has left, because nobody would let go of it. Something may still
        run for such a client.
        """
        if guest not in self.account:
            return
        if not self._touched:
            self._loop.call_soon(self._turn_over)
        self._touched.add(guest)

    def note(self, refusal: PortRefusal, guest: Guest, reason: str) -> None:
        """Counts a refusal.
        It logs one of each kind in a while, because floods would fill the log.
        """
        self.counts[refusal] += 1
        if self._logged.due(refusal, self._loop.time()):
            count = self.counts[refusal]
            self._logger.warning(
                "wire.turned_away",
                reason=refusal.value,
                peer=guest.host,
                why=reason,
                count=count,
            )

    def words(self, refusal: PortRefusal) -> str:
        """Returns the text for a client about a limit of the account, with the setting's name."""
        limits = self.account.limits
        return {
            PortRefusal.CONNECTIONS: f"this node has {limits.connections} clients, which is "
            "brokerMaxConnections; try another one",
            PortRefusal.CONNECTIONS_PER_IP: f"this node has {limits.connections_per_ip} "
            "connections from your address, which is brokerMaxConnectionsPerIp; close some",
            PortRefusal.WATCHES: f"this node may have {limits.watches} watches and consumers, half "
            "of them of your address: close some, or try another one",
            PortRefusal.MEMORY: "what clients have not taken, and their requests that are not "
            f"served yet, fill {limits.memory} bytes, which is brokerMaxMemoryInFlight, and this "
            "connection has most of it",
        }[refusal]

    def _look(self) -> None:
        """Looks at all clients that may have memory."""
        self._look_at(self._keeps | self._touched)

    def _look_at(self, guests: set[Guest]) -> bool:
        """Looks at these clients. Returns True if their memory is too much."""
        is_too_much = False
        for guest in guests:
            memory = guest.memory
            if memory:
                self._keeps.add(guest)
            elif guest in self._keeps:
                self._keeps.discard(guest)
            else:
                continue  # nearly always so: all sent bytes are out by now
            is_too_much |= self.account.keep(guest, memory)
        return is_too_much

    def _turn_over(self) -> None:
        touched, self._touched = self._touched, set()
        if self._look_at(touched):
            self._look_at(self._keeps - touched)  # they may have read meanwhile
            for guest in self.account.overflow():
                guest.turn_away(PortRefusal.MEMORY, self.words(PortRefusal.MEMORY))


def code_of(refusal: PortRefusal) -> ServerError:
    """Returns the protocol's number for a refusal."""
    return _CODES.get(refusal, ServerError.TooManyRequests)
