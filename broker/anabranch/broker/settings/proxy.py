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

from anabranch.broker.settings.broker_client import BrokerClientFields
from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.logs import LogFields
from anabranch.broker.settings.ports import PortFields, PortNames, listed_words
from anabranch.broker.settings.security import CERTIFICATE, AuthenticationFields
from anabranch.broker.settings.sources import read_settings, written_name
from anabranch.broker.settings.tls import TlsFields
from anabranch.broker.settings.topic_lists import TopicListFields
from anabranch.core.names import PORT_MAX

_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[-.\w]+):\d{1,5}", re.ASCII)
# Set by the image of nodes for whatever runs in it; a proxy keeps nothing.
_OF_THE_IMAGE: Final = variable_of("dataDir")
_NODES: Final = ("brokerServiceURL", "brokerWebServiceURL")
_BINARY_SCHEMES: Final = ("pulsar", "pulsar+ssl")
_WEB_SCHEMES: Final = ("http", "https")


WEB, WEB_TLS = "web_service_port", "web_service_port_tls"
BINARY, BINARY_TLS = "service_port", "service_port_tls"
PROXY_PORTS: Final = PortNames(WEB, WEB_TLS, BINARY, BINARY_TLS)


class ProxySettings(
    PortFields, TlsFields, AuthenticationFields, BrokerClientFields, LogFields, TopicListFields
):
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
        description="Nodes' binary ports to begin with, pulsar://host:port,host:port; or "
        "pulsar+ssl:// for those with TLS.",
    )
    broker_web_service_url: str = Field(
        "",
        alias="brokerWebServiceURL",
        description="Nodes' HTTP ports to begin with, http://host:port,host:port, or https:// for "
        "those with TLS; by these the other nodes are found.",
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
    web_service_port: int | None = Field(
        8080,
        ge=0,
        le=PORT_MAX,
        description="Port of look-ups and administration; 0: any free one; empty: none without "
        "TLS.",
    )
    web_service_port_tls: int | None = Field(
        None,
        ge=0,
        le=PORT_MAX,
        description="As webServicePort, with TLS; 0: any free one; empty: none.",
    )
    service_port: int | None = Field(
        6650,
        ge=0,
        le=PORT_MAX,
        description="Port of the binary protocol, which clients speak; 0: any free one; empty: "
        "none without TLS.",
    )
    service_port_tls: int | None = Field(
        None,
        ge=0,
        le=PORT_MAX,
        description="As servicePort, with TLS; 0: any free one; empty: none.",
    )
    advertised_web_service_port: int = Field(
        0, ge=0, le=PORT_MAX, description="The HTTP port as clients reach it; 0: the same."
    )
    advertised_web_service_port_tls: int = Field(
        0, ge=0, le=PORT_MAX, description="As advertisedWebServicePort, with TLS."
    )
    advertised_service_port: int = Field(
        0, ge=0, le=PORT_MAX, description="The binary port as clients reach it; 0: the same."
    )
    advertised_service_port_tls: int = Field(
        0, ge=0, le=PORT_MAX, description="As advertisedServicePort, with TLS."
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

    @field_validator(*PROXY_PORTS, mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("broker_service_url")
    @classmethod
    def _binary(cls, value: str) -> str:
        addresses_in(value, *_BINARY_SCHEMES)
        return value

    @field_validator("broker_web_service_url")
    @classmethod
    def _web(cls, value: str) -> str:
        addresses_in(value, *_WEB_SCHEMES)
        return value

    @property
    def web_url(self) -> str:
        """Where clients send their HTTP requests to; "" for nowhere."""
        return self._url("http", WEB)

    @property
    def web_url_tls(self) -> str:
        """The same with TLS."""
        return self._url("https", WEB_TLS)

    @property
    def service_url(self) -> str:
        """Where clients connect to; "" for nowhere."""
        return self._url("pulsar", BINARY)

    @property
    def service_url_tls(self) -> str:
        """The same with TLS."""
        return self._url("pulsar+ssl", BINARY_TLS)

    def _url(self, scheme: str, field: str) -> str:
        port: int | None = getattr(self, field)
        if port is None:
            return ""
        reached = getattr(self, f"advertised_{field}") or port
        return f"{scheme}://{self.advertised_address}:{reached}"

    @property
    def binary_nodes(self) -> tuple[str, ...]:
        """host:port of the nodes' binary ports that are named."""
        return addresses_in(self.broker_service_url, *_BINARY_SCHEMES)

    @property
    def web_nodes(self) -> tuple[str, ...]:
        """host:port of the nodes' HTTP ports that are named."""
        return addresses_in(self.broker_web_service_url, *_WEB_SCHEMES)

    @property
    def is_tls_with_nodes(self) -> bool:
        """Whether nodes are asked with TLS."""
        named = (self.broker_service_url.strip(), self.broker_web_service_url.strip())
        return any(map(_is_tls, named))


def load_proxy_settings(
    file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]
) -> ProxySettings:
    """Settings from all three sources, as a node's. Raises SettingsError."""
    own = {name: value for name, value in environment.items() if name != _OF_THE_IMAGE}
    return read_settings(ProxySettings, file, own, overrides, _contradictions)


def addresses_in(url: str, *schemes: str) -> tuple[str, ...]:
    """The addresses of a list of nodes, each host:port. Raises ValueError.

    >>> addresses_in("pulsar://one:6650,two:6650/", "pulsar")
    ('one:6650', 'two:6650')
    """
    if not url.strip():
        return ()
    said, sep, rest = url.strip().partition("://")
    if not sep or said not in schemes:
        more = "".join(f", or {each}:// of those with TLS" for each in schemes[1:])
        raise ValueError(f"write {schemes[0]}://host:port,host:port{more}")
    found = tuple(dict.fromkeys(listed_words(rest.rstrip("/"))))
    for each in found:
        if not _ADDRESS.fullmatch(each) or not 0 < (urlsplit(f"//{each}").port or 0) <= PORT_MAX:
            raise ValueError(f"{each!r} is not an address: write host:port")
    return found


def _is_tls(url: str) -> bool:
    return url.startswith((f"{_WEB_SCHEMES[1]}:", f"{_BINARY_SCHEMES[1]}:"))


def _contradictions(settings: ProxySettings) -> Iterator[tuple[tuple[str, ...], str]]:
    with_tls = [port for port in (WEB_TLS, BINARY_TLS) if getattr(settings, port) is not None]
    trusts = settings.tls_trust_certs_file_path is not None
    yield from settings.authentication_problems(trusts_certificates=trusts)
    yield from settings.tls_problems(written_name(ProxySettings, with_tls[0]) if with_tls else "")
    yield from settings.broker_client_problems()
    for plain, tls in ((WEB, WEB_TLS), (BINARY, BINARY_TLS)):
        if getattr(settings, plain) is None and getattr(settings, tls) is None:
            names = written_name(ProxySettings, plain), written_name(ProxySettings, tls)
            yield names, f"neither {names[0]} nor {names[1]} is given: a proxy needs one of them"
    urls = [url.strip() for url in (settings.broker_service_url, settings.broker_web_service_url)]
    if len({_is_tls(url) for url in urls if url}) > 1:
        yield (
            _NODES,
            (
                "nodes are named with TLS and without: name all ports by pulsar+ssl:// and "
                "https://, or all by pulsar:// and http://"
            ),
        )
    if settings.broker_client_method == CERTIFICATE and not settings.is_tls_with_nodes:
        yield (
            ("brokerClientAuthenticationPlugin", *_NODES),
            (
                f"brokerClientAuthenticationPlugin is {CERTIFICATE}, which needs TLS with nodes: "
                "name them by pulsar+ssl:// and https://"
            ),
        )
    if settings.broker_client_method and not settings.authentication_enabled:
        yield (
            ("authenticationEnabled", "brokerClientAuthenticationPlugin"),
            (
                "brokerClientAuthenticationPlugin needs authenticationEnabled: else nodes would "
                "believe this proxy of clients of whom it has asked nothing"
            ),
        )
    if not settings.broker_service_url.strip() and not settings.broker_web_service_url.strip():
        yield (
            _NODES,
            (
                "no node is named: give brokerWebServiceURL, http://host:port of one node or more; "
                "the others are found by it"
            ),
        )
