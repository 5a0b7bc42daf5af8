"""`PortAccount`: the use of one port by its clients, by connection and address, and its limits.

A stranger is an address that connects. It is one address of IPv4, or 64 bits of IPv6, because the
holder of one IPv6 address has all of its network (RFC 6177). The port tells the account of joins
and leaves, of watches that open and close, and of the bytes that it keeps for each connection. The
account says which connections the port refuses or closes, and why. It keeps nothing of connections
that have left.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, unique
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Final, Generic, TypeVar

import msgspec

_PREFIX_BITS: Final = 64  # for IPv6: one subscriber of a network has at least these

Member = TypeVar("Member", bound=Hashable)


@unique
class PortRefusal(Enum):
    """Why a client of the binary port is refused something, or disconnected; a counter's label."""

    CONNECTIONS = "connections"
    CONNECTIONS_PER_IP = "connections_per_ip"
    WATCHES = "watches"
    MEMORY = "memory"  # bytes in flight
    HANDSHAKE = "handshake"  # no CONNECT in time
    IDLE = "idle"  # nothing asked for too long, and nothing watched
    FRAME_SIZE = "frame_size"
    FRAME_TIME = "frame_time"  # begun, and not there whole in time
    MALFORMED = "malformed"  # no frame, or no command
    NOT_READ = "not_read"  # the client does not take the bytes sent
    SILENT = "silent"  # no answer to a PING
    REVOKED = "revoked"  # the right to a watch that cannot be ended otherwise
    COSTLY = "costly"  # a proxy has no memory for a list that it watches
    AUTHENTICATION = "authentication"  # not who it says, or not shown anew in time


class AccountLimits(msgspec.Struct, frozen=True):
    """The limits on concurrent use by clients; 0 means no limit. Memory is in bytes.

    One address may have half of the watches.
    """

    connections: int = 0
    connections_per_ip: int = 0
    watches: int = 0
    memory: int = 0


class Joined(msgspec.Struct, Generic[Member], frozen=True):
    """The answer to a client that connects: a refusal, or an admission for which another may give
    way.
    """

    refusal: PortRefusal | None = None
    gives_way: Member | None = None


class _Stranger(Generic[Member]):
    """The use by the connections of one address."""

    __slots__ = ("address", "members", "memory", "watches")

    def __init__(self, address: str) -> None:
        self.address = address
        self.members: dict[Member, None] = {}
        self.watches = 0
        self.memory = 0


class _Use(Generic[Member]):
    """The use by one connection."""

    __slots__ = ("is_out", "memory", "stranger", "watches")

    def __init__(self, stranger: _Stranger[Member]) -> None:
        self.stranger = stranger
        self.watches = 0
        self.memory = 0
        self.is_out = False  # it has to go: its use does not count any more


class PortAccount(Generic[Member]):
    """The account of one port. A member is a connection; calls for a connection that is no member
    change nothing.
    """

    def __init__(self, limits: AccountLimits) -> None:
        self.limits = limits
        self.watches = 0
        self.memory = 0
        self._uses: dict[Member, _Use[Member]] = {}
        self._strangers: dict[str, _Stranger[Member]] = {}
        self._ungreeted: dict[Member, None] = {}  # that have not shaken hands; longest first

    def __contains__(self, member: Member) -> bool:
        return member in self._uses

    @property
    def connections(self) -> int:
        """Members."""
        return len(self._uses)

    @property
    def strangers(self) -> int:
        """Addresses that members come from."""
        return len(self._strangers)

    def join(self, member: Member, address: str) -> Joined[Member]:
        """Lets one in, or refuses it.

        If the port is full, the connection that has waited longest for its handshake gives way, so
        silence keeps nobody out. A connection that gives way is no member any more.
        """
        stranger = self._strangers.get(address)
        if stranger is not None and _is_at(len(stranger.members), self.limits.connections_per_ip):
            return Joined(PortRefusal.CONNECTIONS_PER_IP)
        gives_way: Member | None = None
        if _is_at(len(self._uses), self.limits.connections):
            if not self._ungreeted:
                return Joined(PortRefusal.CONNECTIONS)
            gives_way = next(iter(self._ungreeted))
            self.leave(gives_way)
        stranger = self._strangers.setdefault(address, _Stranger(address))
        stranger.members[member] = None
        self._uses[member] = _Use(stranger)
        self._ungreeted[member] = None
        return Joined(None, gives_way)

    def greet(self, member: Member) -> None:
        """The connection has shaken hands. It never gives way any more."""
        self._ungreeted.pop(member, None)

    def leave(self, member: Member) -> None:
        """It is gone, with all that it used."""
        use = self._uses.pop(member, None)
        if use is None:
            return
        self._ungreeted.pop(member, None)
        self._keep(use, 0)
        self.watches -= use.watches
        use.stranger.watches -= use.watches
        del use.stranger.members[member]
        if not use.stranger.members:
            del self._strangers[use.stranger.address]

    def watches_of(self, member: Member) -> int:
        """Returns the number of the member's watches."""
        use = self._uses.get(member)
        return use.watches if use is not None else 0

    def open_watch(self, member: Member) -> PortRefusal | None:
        """One more of a member, unless it is refused."""
        use = self._uses.get(member)
        if use is None:
            return None
        most = self.limits.watches
        if _is_at(self.watches, most) or _is_at(use.stranger.watches, (most + 1) // 2):
            return PortRefusal.WATCHES
        use.watches += 1
        use.stranger.watches += 1
        self.watches += 1
        return None

    def close_watch(self, member: Member) -> None:
        """One less."""
        use = self._uses.get(member)
        if use is not None and use.watches:
            use.watches -= 1
            use.stranger.watches -= 1
            self.watches -= 1

    def keep(self, member: Member, memory: int) -> bool:
        """So many bytes are kept for a member. Returns whether that is too much for the port: then
        ask `overflow`.
        """
        use = self._uses.get(member)
        if use is None or use.is_out:
            return False
        self._keep(use, memory)
        return self._is_full()

    def overflow(self) -> list[Member]:
        """Returns the connections that must go until the limit holds; their use counts no longer.

        The greatest connection of the greatest address goes.
        """
        out: list[Member] = []
        while self._is_full():
            stranger = max(self._strangers.values(), key=lambda each: each.memory)
            greatest = max(stranger.members, key=lambda member: self._uses[member].memory)
            use = self._uses[greatest]
            self._keep(use, 0)
            use.is_out = True
            out.append(greatest)
        return out

    def _keep(self, use: _Use[Member], memory: int) -> None:
        more = memory - use.memory
        use.memory = memory
        use.stranger.memory += more
        self.memory += more

    def _is_full(self) -> bool:
        return bool(self.limits.memory) and self.memory > self.limits.memory


def stranger_of(host: str) -> str:
    """The address that a connection is counted by.

    >>> stranger_of("192.0.2.7"), stranger_of("::ffff:192.0.2.7")
    ('192.0.2.7', '192.0.2.7')
    >>> stranger_of("2001:db8:1:2:3:4:5:6"), stranger_of("::1"), stranger_of("fe80::1%eth0")
    ('2001:db8:1:2::/64', '::1', 'fe80::1%eth0')
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_link_local or address.is_loopback:
        return str(address)  # all links have the same prefix: there an address is what tells
    return str(IPv6Network((int(address), _PREFIX_BITS), strict=False))


def _is_at(used: int, most: int) -> bool:
    return bool(most) and used >= most
