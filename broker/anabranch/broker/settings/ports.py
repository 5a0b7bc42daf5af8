"""The settings of a node's two ports: limits on strangers' use, and the networks that they come
from.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from anabranch.broker.settings.fields import SettingFields, field
from anabranch.core.strangers import AccountLimits
from anabranch.wire.connection import ConnectionLimits

_HOST: Final = re.compile(r"[-.\w]+", re.ASCII)
_MEMORY_MIN: Final = 1 << 24  # a frame and what is unsent of one connection
_IDLE_S_MAX: Final = 600.0  # for a client that watches nothing
_WATCHES_MAX: Final = 1_000_000  # of layouts and topic lists, and consumers, of all clients
ANY: Final = "*"


class PortNames(NamedTuple):
    """The fields of the settings of a process's ports."""

    web: str
    web_tls: str
    binary: str
    binary_tls: str


class HttpLimits(msgspec.Struct, frozen=True):
    """The limits on clients of the HTTP port; sizes in bytes.

    `request_s_max`: the time for a request to arrive, and for an answer to be taken.
    """

    connections_max: int
    header_bytes_max: int
    body_bytes_max: int = 1 << 20
    request_s_max: float = 30.0


def listed_words(text: str) -> list[str]:
    """Returns the words that commas separate.

    >>> listed_words("a, b,")
    ['a', 'b']
    """
    return [each.strip() for each in text.split(",") if each.strip()]


def _hosts_fault(value: str) -> str:
    for each in listed_words(value):
        if each != ANY and not _HOST.fullmatch(each):
            return f"{each!r} is no host name: write it without scheme and port"
    return ""


class PortFields(SettingFields):
    """Named as in Pulsar's broker.conf where that has them."""

    max_http_server_connections: int = field(
        2_048,
        ge=1,
        le=1_000_000,
        description="Most HTTP connections; a further one closes the longest idle one.",
    )
    http_max_request_header_size: int = field(
        8_192, ge=256, le=1 << 20, description="Most bytes of a request's line and headers."
    )
    web_service_allowed_hosts: str = field(
        "",
        check=_hosts_fault,
        description="Host names (a,b,...) for requests, besides the node's own and addresses; "
        "empty: any, except from browsers; *: any.",
    )
    broker_max_connections: int = field(
        10_000, ge=1, le=1_000_000, description="Most connections of clients to the binary port."
    )
    broker_max_connections_per_ip: int = field(
        0,
        ge=0,
        le=1_000_000,
        description="Most connections of one address to the binary port; a proxy's clients share "
        "its address, an IPv6 /64 is one address. 0: any number.",
    )
    broker_max_memory_in_flight: int = field(
        1 << 29,
        ge=_MEMORY_MIN,
        description="Most bytes kept for all clients of the binary port: untaken answers and "
        "unserved requests.",
    )

    @property
    def http_limits(self) -> HttpLimits:
        """The limits of the HTTP server."""
        return HttpLimits(self.max_http_server_connections, self.http_max_request_header_size)

    @property
    def wire_limits(self) -> ConnectionLimits:
        """The limits of the binary port."""
        return ConnectionLimits(
            idle_s_max=_IDLE_S_MAX,
            account=AccountLimits(
                connections=self.broker_max_connections,
                connections_per_ip=self.broker_max_connections_per_ip,
                watches=_WATCHES_MAX,
                memory=self.broker_max_memory_in_flight,
            ),
        )


DEFAULT_HTTP_LIMITS: Final = PortFields.of({}).http_limits
