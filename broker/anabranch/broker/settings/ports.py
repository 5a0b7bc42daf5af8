"""The settings of a node's two ports: limits on strangers' use, and the networks that they come
from.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
from pydantic import BaseModel, Field, field_validator

from anabranch.core.strangers import AccountLimits
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import FRAME_BYTES_MAX

_HOST: Final = re.compile(r"[-.\w]+", re.ASCII)
_MEMORY_MIN: Final = 1 << 24  # a frame and what is unsent of one connection
ANY: Final = "*"


class PortNames(NamedTuple):
    """The fields of the settings of a process's ports."""

    web: str
    web_tls: str
    binary: str
    binary_tls: str


class HttpLimits(msgspec.Struct, frozen=True):
    """The limits on clients of the HTTP port; sizes in bytes, times in seconds."""

    connections_max: int
    header_bytes_max: int
    body_bytes_max: int
    request_s_max: float


class PortFields(BaseModel):
    """Named as in Pulsar's broker.conf where that has them."""

    max_http_server_connections: int = Field(
        2_048,
        ge=1,
        le=1_000_000,
        description="Most HTTP connections; a further one closes the longest idle one.",
    )
    http_max_request_header_size: int = Field(
        8_192, ge=256, le=1 << 20, description="Most bytes of a request's line and headers."
    )
    http_max_request_size: int = Field(
        1 << 20, ge=1_024, le=1 << 26, description="Most bytes of a request's body."
    )
    http_request_timeout_millis: int = Field(
        30_000,
        ge=100,
        description="Time for a request to arrive, and for an answer to be taken.",
    )
    web_service_allowed_hosts: str = Field(
        "",
        description="Host names (a,b,...) for requests, besides the node's own and addresses; "
        "empty: any, except from browsers; *: any.",
    )
    broker_max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="Most connections of clients to the binary port."
    )
    broker_frame_timeout_millis: int = Field(
        30_000, ge=100, description="Time for a frame of the binary port to arrive."
    )
    broker_max_connections_per_ip: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Most connections of one address to the binary port; a proxy's clients share "
        "its address, an IPv6 /64 is one address. 0: any number.",
    )
    broker_handshake_timeout_millis: int = Field(
        10_000, ge=100, description="Time for a client to send CONNECT."
    )
    broker_connection_max_idle_seconds: float = Field(
        600.0,
        ge=0,
        description="Time that a client of the binary port may be idle and watch nothing; 0: for "
        "ever.",
    )
    broker_max_frame_size: int = Field(
        FRAME_BYTES_MAX,
        ge=1 << 16,
        le=1 << 26,
        description="Most bytes of a client's frame on the binary port; no limit of messages, "
        "which go to Kafka.",
    )
    broker_max_watches: int = Field(
        1_000_000,
        ge=1,
        description="Most watches of layouts and topic lists, and consumers, of all clients; one "
        "address has half of them at most.",
    )
    broker_max_memory_in_flight: int = Field(
        1 << 29,
        ge=_MEMORY_MIN,
        description="Most bytes kept for all clients of the binary port: untaken answers and "
        "unserved requests.",
    )

    @field_validator("web_service_allowed_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        for each in listed_words(value):
            if each != ANY and not _HOST.fullmatch(each):
                raise ValueError(f"{each!r} is no host name: write it without scheme and port")
        return value

    @property
    def http_limits(self) -> HttpLimits:
        """The limits of the HTTP server."""
        return HttpLimits(
            connections_max=self.max_http_server_connections,
            header_bytes_max=self.http_max_request_header_size,
            body_bytes_max=self.http_max_request_size,
            request_s_max=self.http_request_timeout_millis / 1000,
        )

    @property
    def wire_limits(self) -> ConnectionLimits:
        """The limits of the binary port."""
        return ConnectionLimits(
            frame_s_max=self.broker_frame_timeout_millis / 1000,
            handshake_s_max=self.broker_handshake_timeout_millis / 1000,
            received_frame_bytes_max=self.broker_max_frame_size,
            idle_s_max=self.broker_connection_max_idle_seconds,
            account=AccountLimits(
                connections=self.broker_max_connections,
                connections_per_ip=self.broker_max_connections_per_ip,
                watches=self.broker_max_watches,
                memory=self.broker_max_memory_in_flight,
            ),
        )


def listed_words(text: str) -> list[str]:
    """Returns the words that commas separate.

    >>> listed_words("a, b,")
    ['a', 'b']
    """
    return [each.strip() for each in text.split(",") if each.strip()]


DEFAULT_HTTP_LIMITS: Final = PortFields.model_validate({}).http_limits
