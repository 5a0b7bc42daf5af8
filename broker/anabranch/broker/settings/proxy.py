"""A proxy's settings, by the names of Pulsar's proxy.conf where that has them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.logs import LogFields
from anabranch.broker.settings.ports import PortFields, listed_words
from anabranch.broker.settings.sources import read_settings
from anabranch.broker.settings.topic_lists import TopicListFields
from anabranch.core.names import PORT_MAX

_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[-.\w]+):\d{1,5}", re.ASCII)
# Set by the image of nodes for whatever runs in it; a proxy keeps nothing.
_OF_THE_IMAGE: Final = variable_of("dataDir")
_NODES: Final = ("brokerServiceURL", "brokerWebServiceURL")


class ProxySettings(PortFields, LogFields, TopicListFields):
    """What a proxy can be told. It keeps nothing, so that is all it goes by."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        allow_inf_nan=False,
    )

    broker_service_url: str = Field(
        "",
        alias="brokerServiceURL",
        description="Nodes' binary ports to begin with, pulsar://host:port,host:port.",
    )
    broker_web_service_url: str = Field(
        "",
        alias="brokerWebServiceURL",
        description="Nodes' HTTP ports to begin with, http://host:port,host:port; by these the "
        "other nodes are found.",
    )
    cluster_name: str = Field(
        "standalone", min_length=1, description="Name of the cluster, as the metrics have it."
    )
    bind_address: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104
    advertised_address: str = Field(
        default_factory=socket.gethostname,
        pattern=r"^[-.\w:\[\]]+$",
        description="Host name or address by which clients reach this proxy, or the load balancer "
        "in front of several; the host's own if left.",
    )
    web_service_port: int = Field(
        8080, ge=0, le=PORT_MAX, description="Port of look-ups and administration; 0: any free one."
    )
    service_port: int = Field(
        6650,
        ge=0,
        le=PORT_MAX,
        description="Port of the binary protocol, which clients speak; 0: any free one.",
    )
    advertised_web_service_port: int = Field(
        0, ge=0, le=PORT_MAX, description="The HTTP port as clients reach it; 0: the same."
    )
    advertised_service_port: int = Field(
        0, ge=0, le=PORT_MAX, description="The binary port as clients reach it; 0: the same."
    )
    broker_proxy_connect_timeout_ms: int = Field(
        3_000, ge=10, le=600_000, description="How long a connection to a node may take to be made."
    )
    http_proxy_timeout: int = Field(
        60_000,
        ge=100,
        le=3_600_000,
        description="Milliseconds in which a node must begin to answer an HTTP request, and go on.",
    )
    broker_list_refresh_seconds: float = Field(
        10.0, ge=0.1, le=3_600, description="Time between two looks at which nodes there are."
    )
    proxy_shutdown_timeout_ms: int = Field(
        5_000, ge=0, description="How long requests under way are waited for at a graceful stop."
    )

    @field_validator("broker_service_url")
    @classmethod
    def _binary(cls, value: str) -> str:
        addresses_in(value, "pulsar")
        return value

    @field_validator("broker_web_service_url")
    @classmethod
    def _web(cls, value: str) -> str:
        addresses_in(value, "http")
        return value

    @property
    def web_url(self) -> str:
        """Where clients send their HTTP requests to."""
        port = self.advertised_web_service_port or self.web_service_port
        return f"http://{self.advertised_address}:{port}"

    @property
    def service_url(self) -> str:
        """Where clients connect to."""
        port = self.advertised_service_port or self.service_port
        return f"pulsar://{self.advertised_address}:{port}"

    @property
    def binary_nodes(self) -> tuple[str, ...]:
        """host:port of the nodes' binary ports that are named."""
        return addresses_in(self.broker_service_url, "pulsar")

    @property
    def web_nodes(self) -> tuple[str, ...]:
        """host:port of the nodes' HTTP ports that are named."""
        return addresses_in(self.broker_web_service_url, "http")


def load_proxy_settings(
    file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]
) -> ProxySettings:
    """Settings from all three sources, as a node's. Raises SettingsError."""
    own = {name: value for name, value in environment.items() if name != _OF_THE_IMAGE}
    return read_settings(ProxySettings, file, own, overrides, _contradictions)


def addresses_in(url: str, scheme: str) -> tuple[str, ...]:
    """The addresses of a list of nodes, each host:port. Raises ValueError.

    >>> addresses_in("pulsar://one:6650,two:6650/", "pulsar")
    ('one:6650', 'two:6650')
    """
    if not url.strip():
        return ()
    said, sep, rest = url.strip().partition("://")
    if not sep or said != scheme:
        raise ValueError(f"write {scheme}://host:port,host:port")
    found = tuple(dict.fromkeys(listed_words(rest.rstrip("/"))))
    for each in found:
        if not _ADDRESS.fullmatch(each) or not 0 < (urlsplit(f"//{each}").port or 0) <= PORT_MAX:
            raise ValueError(f"{each!r} is not an address: write host:port")
    return found


def _contradictions(settings: ProxySettings) -> Iterator[tuple[tuple[str, ...], str]]:
    if not settings.broker_service_url.strip() and not settings.broker_web_service_url.strip():
        yield (
            _NODES,
            (
                "no node is named: give brokerWebServiceURL, http://host:port of one node or more; "
                "the others are found by it"
            ),
        )
