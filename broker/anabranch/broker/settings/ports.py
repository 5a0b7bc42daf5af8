"""The settings of a node's two ports: what strangers may use up, and from where they may come."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from pydantic import BaseModel, Field, field_validator

from anabranch.wire.connection import ConnectionLimits

_ORIGIN: Final = re.compile(r"https?://[-.\w]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?")
_HOST: Final = re.compile(r"[-.\w]+", re.ASCII)
ANY: Final = "*"


class HttpLimits(msgspec.Struct, frozen=True):
    """What clients of the HTTP port may use up; sizes in bytes, times in seconds."""

    connections_max: int
    header_bytes_max: int
    body_bytes_max: int
    bodies_bytes_max: int  # of all requests together
    request_s_max: float


class PortFields(BaseModel):
    """Named as in Pulsar's broker.conf where that has them."""

    max_http_server_connections: int = Field(
        2_048,
        ge=1,
        le=1_000_000,
        description="HTTP connections at once; for one more, the one that has waited longest "
        "without a request is closed.",
    )
    http_max_request_header_size: int = Field(
        8_192, ge=256, le=1 << 20, description="Most bytes of a request's line and headers."
    )
    http_max_request_size: int = Field(
        1 << 20, ge=1_024, le=1 << 26, description="Most bytes of a request's body."
    )
    http_max_requests_memory: int = Field(
        1 << 26, ge=1_024, description="Most bytes of the bodies of all requests at once."
    )
    http_request_timeout_millis: int = Field(
        30_000,
        ge=100,
        description="How long a request may take to arrive, and an answer to be taken.",
    )
    web_service_allowed_origins: str = Field(
        "",
        description="Web origins (https://host:port,...) from whose pages browsers may send "
        "requests, besides the node's own; *: all.",
    )
    web_service_allowed_hosts: str = Field(
        "",
        description="Host names (a,b,...) that requests may be for, besides the node's own and "
        "addresses; empty: any, but not from browsers; *: any at all.",
    )
    broker_max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="Connections of clients to the binary port at once."
    )
    broker_frame_timeout_millis: int = Field(
        30_000, ge=100, description="How long a frame of the binary port may take to arrive."
    )
    broker_max_unfinished_frames_memory: int = Field(
        1 << 28,
        ge=1 << 23,
        description="Most bytes of frames that have not arrived whole, of all connections.",
    )

    @field_validator("web_service_allowed_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        for each in listed_words(value):
            if each != ANY and not _ORIGIN.fullmatch(each):
                raise ValueError(f"{each!r} is no origin: write http://host:port or https://host")
        return value

    @field_validator("web_service_allowed_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        for each in listed_words(value):
            if each != ANY and not _HOST.fullmatch(each):
                raise ValueError(f"{each!r} is no host name: write it without scheme and port")
        return value

    @property
    def http_limits(self) -> HttpLimits:
        """What the HTTP server needs to know."""
        return HttpLimits(
            connections_max=self.max_http_server_connections,
            header_bytes_max=self.http_max_request_header_size,
            body_bytes_max=self.http_max_request_size,
            bodies_bytes_max=max(self.http_max_requests_memory, self.http_max_request_size),
            request_s_max=self.http_request_timeout_millis / 1000,
        )

    @property
    def wire_limits(self) -> ConnectionLimits:
        """What the binary port needs to know."""
        return ConnectionLimits(
            frame_s_max=self.broker_frame_timeout_millis / 1000,
            connections_max=self.broker_max_connections,
            unfinished_bytes_max=self.broker_max_unfinished_frames_memory,
        )


def listed_words(text: str) -> list[str]:
    """What commas separate.

    >>> listed_words("a, b,")
    ['a', 'b']
    """
    return [each.strip() for each in text.split(",") if each.strip()]


DEFAULT_HTTP_LIMITS: Final = PortFields.model_validate({}).http_limits
