"""`PortAccount`: the use of one port by its clients, by connection, address and role, and its
limits.

A stranger is an address that connects. It is one address of IPv4, or 64 bits of IPv6, because the
holder of one IPv6 address has all of its network (RFC 6177). The port tells the account of joins
and leaves, of watches that open and close, and of the bytes that it keeps for each connection. The
account says which connections the port refuses or closes, and why. It keeps nothing of connections
that have left.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, unique
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Generic, TypeVar

import msgspec

_PREFIX_BITS: Final = 64  # for IPv6: one subscriber of a network has at least these

Member = TypeVar("Member", bound=Hashable)


@unique
class PortRefusal(Enum):
    """Why a client of the binary port is refused something, or disconnected; a counter's label."""

    CONNECTIONS = "connections"
    CONNECTIONS_PER_IP = "connections_per_ip"
    CONNECTIONS_PER_PRINCIPAL = "connections_per_principal"
    WATCHES = "watches"
    WATCHES_PER_IP = "watches_per_ip"
    WATCHES_PER_PRINCIPAL = "watches_per_principal"
    WATCHES_PER_CONNECTION = "watches_per_connection"
    MEMORY = "memory"  # bytes in flight
    MEMORY_PER_IP = "memory_per_ip"
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
    """The limits on concurrent use by clients; 0 means no limit. Memory is in bytes."""

    connections: int = 0
    connections_per_ip: int = 0
    connections_per_principal: int = 0
    watches: int = 0
    watches_per_ip: int = 0
    watches_per_principal: int = 0
    watches_per_connection: int = 0
    memory: int = 0
    memory_per_ip: int = 0


class Joined(msgspec.Struct, Generic[Member], frozen=True):
    """The answer to a client that connects: a refusal, or an admission for which another may give
    way.
    """

    refusal: PortRefusal | None = None
    gives_way: Member | None = None


class _Stranger(Generic[Member]):
    """The use by the connections of one address."""

    __slots__ = ("is_exempt", "key", "members", "memory", "watches")

    def __init__(self, key: object, is_exempt: bool) -> None:
        self.key = key
        self.is_exempt = is_exempt
        self.members: dict[Member, None] = {}
        self.watches = 0
        self.memory = 0


class _Role:
    """The use by the connections of one role, from any address."""

    __slots__ = ("connections", "name", "watches")

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = 0
        self.watches = 0


class _Use(Generic[Member]):
    """The use by one connection."""

    __slots__ = ("is_out", "memory", "role", "stranger", "watches")

    def __init__(self, stranger: _Stranger[Member]) -> None:
        self.stranger = stranger
        self.role: _Role | None = None  # None until the client has said its role
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
        self._strangers: dict[object, _Stranger[Member]] = {}
        self._roles: dict[str, _Role] = {}
        self._ungreeted: dict[Member, None] = {}  # that have not shaken hands; longest first

    def __contains__(self, member: Member) -> bool:
        return member in self._uses

    @property
    def connections(self) -> int:
        """Members."""
        return len(self._uses)

    @property
    def strangers(self) -> int:
        """Addresses that members come from; one that is exempt counts for each connection."""
        return len(self._strangers)

    @property
    def roles(self) -> int:
        """Roles that members have shaken hands as."""
        return len(self._roles)

    def join(self, member: Member, address: str, *, is_exempt: bool = False) -> Joined[Member]:
        """Lets one in, or refuses it. An exempt one counts as an address of its own.

        If the port is full, the connection that has waited longest for its handshake gives way, so
        silence keeps nobody out. A connection that gives way is no member any more.
        """
        key: object = ("", member) if is_exempt else address
        stranger = self._strangers.get(key)
        if stranger is not None and _is_at(len(stranger.members), self.limits.connections_per_ip):
            return Joined(PortRefusal.CONNECTIONS_PER_IP)
        gives_way: Member | None = None
        if _is_at(len(self._uses), self.limits.connections):
            if not self._ungreeted:
                return Joined(PortRefusal.CONNECTIONS)
            gives_way = next(iter(self._ungreeted))
            self.leave(gives_way)
        stranger = self._strangers.setdefault(key, _Stranger(key, is_exempt))
        stranger.members[member] = None
        self._uses[member] = _Use(stranger)
        self._ungreeted[member] = None
        return Joined(None, gives_way)

    def greet(self, member: Member, role: str = "") -> PortRefusal | None:
        """The connection has shaken hands, as this role if it has one. It never gives way any more,
        unless it is refused.
        """
        use = self._uses.get(member)
        if role and use is not None and use.role is None:
            known = self._roles.get(role) or _Role(role)
            if _is_at(known.connections, self.limits.connections_per_principal):
                return PortRefusal.CONNECTIONS_PER_PRINCIPAL
            known.connections += 1
            known.watches += use.watches
            use.role = self._roles[role] = known
        self._ungreeted.pop(member, None)
        return None

    def leave(self, member: Member) -> None:
        """It is gone, with all that it used."""
        use = self._uses.pop(member, None)
        if use is None:
            return
        self._ungreeted.pop(member, None)
        self._keep(use, 0)
        self.watches -= use.watches
        use.stranger.watches -= use.watches
        if use.role is not None:
            use.role.watches -= use.watches
            use.role.connections -= 1
            if not use.role.connections:
                del self._roles[use.role.name]
        del use.stranger.members[member]
        if not use.stranger.members:
            del self._strangers[use.stranger.key]

    def sharers(self, member: Member) -> tuple[Hashable, ...]:
        """Returns the accounts that a member's use counts for: its address (itself if that is
        exempt) and its role. Returns nothing if the member is gone.
        """
        use = self._uses.get(member)
        if use is None:
            return ()
        return (use.stranger, use.role) if use.role is not None else (use.stranger,)

    def watches_of(self, member: Member) -> int:
        """Returns the number of the member's watches."""
        use = self._uses.get(member)
        return use.watches if use is not None else 0

    def open_watch(self, member: Member) -> PortRefusal | None:
        """One more of a member, unless it is refused."""
        use = self._uses.get(member)
        if use is None:
            return None
        if _is_at(use.watches, self.limits.watches_per_connection):
            return PortRefusal.WATCHES_PER_CONNECTION
        stranger = use.stranger
        if not stranger.is_exempt and _is_at(stranger.watches, self.limits.watches_per_ip):
            return PortRefusal.WATCHES_PER_IP
        role = use.role
        if role is not None and _is_at(role.watches, self.limits.watches_per_principal):
            return PortRefusal.WATCHES_PER_PRINCIPAL
        if _is_at(self.watches, self.limits.watches):
            return PortRefusal.WATCHES
        if role is not None:
            role.watches += 1
        use.watches += 1
        stranger.watches += 1
        self.watches += 1
        return None

    def close_watch(self, member: Member) -> None:
        """One less."""
        use = self._uses.get(member)
        if use is not None and use.watches:
            if use.role is not None:
                use.role.watches -= 1
            use.watches -= 1
            use.stranger.watches -= 1
            self.watches -= 1

    def keep(self, member: Member, memory: int) -> bool:
        """So many bytes are kept for a member. Returns whether that is too much for its address or
        the port: then ask `overflow`.
        """
        use = self._uses.get(member)
        if use is None or use.is_out:
            return False
        self._keep(use, memory)
        return self._is_over(use.stranger) or self._is_full()

    def overflow(self) -> list[tuple[Member, PortRefusal]]:
        """Returns the connections that must go until every limit holds; their use counts no longer.

        The greatest connection of an address goes. On a full port, the greatest connection of the
        greatest address goes.
        """
        out: list[tuple[Member, PortRefusal]] = []
        for stranger in [each for each in self._strangers.values() if self._is_over(each)]:
            while self._is_over(stranger):
                out.append((self._put_out(stranger), PortRefusal.MEMORY_PER_IP))
        while self._is_full():
            greatest = max(self._strangers.values(), key=lambda each: each.memory)
            out.append((self._put_out(greatest), PortRefusal.MEMORY))
        return out

    def _put_out(self, stranger: _Stranger[Member]) -> Member:
        greatest = max(stranger.members, key=lambda member: self._uses[member].memory)
        use = self._uses[greatest]
        self._keep(use, 0)
        use.is_out = True
        return greatest

    def _keep(self, use: _Use[Member], memory: int) -> None:
        more = memory - use.memory
        use.memory = memory
        use.stranger.memory += more
        self.memory += more

    def _is_over(self, stranger: _Stranger[Member]) -> bool:
        most = self.limits.memory_per_ip
        return bool(most) and not stranger.is_exempt and stranger.memory > most

    def _is_full(self) -> bool:
        return bool(self.limits.memory) and self.memory > self.limits.memory


class ExemptAddresses:
    """Networks to which no limit of an address applies."""

    def __init__(self, networks: tuple[str, ...] = ()) -> None:
        """Raises ValueError for a text that is neither an address nor a network."""
        self._networks = tuple(ip_network(each, strict=False) for each in networks)

    def holds(self, host: str) -> bool:
        """Tells whether the address is exempt.

        >>> ExemptAddresses(("10.0.0.0/8",)).holds("::ffff:10.1.2.3")
        True
        """
        address = _address_of(host)
        return address is not None and any(address in each for each in self._networks)


def stranger_of(host: str) -> str:
    """The address that a connection is counted by.

    >>> stranger_of("192.0.2.7"), stranger_of("::ffff:192.0.2.7")
    ('192.0.2.7', '192.0.2.7')
    >>> stranger_of("2001:db8:1:2:3:4:5:6"), stranger_of("::1"), stranger_of("fe80::1%eth0")
    ('2001:db8:1:2::/64', '::1', 'fe80::1%eth0')
    """
    address = _address_of(host)
    if address is None:
        return host
    if isinstance(address, IPv4Address) or address.is_link_local or address.is_loopback:
        return str(address)  # all links have the same prefix: there an address is what tells
    return str(IPv6Network((int(address), _PREFIX_BITS), strict=False))


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_at(used: int, most: int) -> bool:
    return bool(most) and used >= most
