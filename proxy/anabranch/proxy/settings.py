"""A proxy's settings, by the names of Pulsar's proxy.conf where that has them.

A proxy has few of its own. The other settings of a node's ports are constants here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from anabranch.broker.settings.broker_client import BrokerClientFields, NodeTokenFields
from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.fields import SettingFields, field
from anabranch.broker.settings.ports import PortFields, PortNames, listed_words
from anabranch.broker.settings.security import TOKEN, AuthenticationFields, TokenFields
from anabranch.broker.settings.sources import read_settings, written_name
from anabranch.broker.settings.tls import CertificateFields, TlsFields
from anabranch.broker.settings.topic_lists import TopicListFields
from anabranch.core.names import PORT_MAX

_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[-.\w]+):\d{1,5}", re.ASCII)
_HOST: Final = re.compile(r"[-.\w:\[\]]+")
# The image of nodes sets it for whatever runs in it; a proxy keeps nothing.
_OF_THE_IMAGE: Final = variable_of("dataDir")
_PLAIN, _SECURE = "http", "https"

# All interfaces: in a container, where proxies run, there is none to choose.
BIND_ADDRESS: Final = "0.0.0.0"  # noqa: S104
WEB, WEB_TLS = "web_service_port", "web_service_port_tls"
BINARY, BINARY_TLS = "service_port", "service_port_tls"
PROXY_PORTS: Final = PortNames(WEB, WEB_TLS, BINARY, BINARY_TLS)
_SCHEMES: Final = {WEB: _PLAIN, WEB_TLS: _SECURE, BINARY: "pulsar", BINARY_TLS: "pulsar+ssl"}

PORTS: Final = PortFields.of({})  # a node's defaults


def addresses_in(url: str) -> tuple[str, ...]:
    """The addresses of a list of nodes, each host:port. Raises ValueError.

    >>> addresses_in("http://one:8080,two:8080/")
    ('one:8080', 'two:8080')
    """
    if not url.strip():
        return ()
    scheme, sep, rest = url.strip().partition("://")
    if not sep or scheme not in (_PLAIN, _SECURE):
        raise ValueError("write http://host:port,host:port, or https:// of those with TLS")
    found = tuple(dict.fromkeys(listed_words(rest.rstrip("/"))))
    for each in found:
        if not _is_address(each):
            raise ValueError(f"{each!r} is not an address: write host:port")
    return found


def _nodes_fault(value: str) -> str:
    try:
        addresses_in(value)
    except ValueError as error:
        return str(error)
    return ""


def _address_fault(value: str) -> str:
    if _HOST.fullmatch(value) or _urls_in(value):
        return ""
    return "write a host name, or URLs: pulsar://host:port,http://host:port"


def _urls_in(text: str) -> dict[str, str]:
    """host:port by scheme; empty where the text is not a list of URLs of different schemes."""
    found: dict[str, str] = {}
    for each in listed_words(text):
        scheme, _, address = each.partition("://")
        if scheme not in _SCHEMES.values() or scheme in found or not _is_address(address):
            return {}
        found[scheme] = address
    return found


def _is_address(text: str) -> bool:
    return bool(_ADDRESS.fullmatch(text)) and 0 < (urlsplit(f"//{text}").port or 0) <= PORT_MAX


class ProxySettings(
    TopicListFields, CertificateFields, TokenFields, NodeTokenFields, SettingFields
):
    """All that a proxy goes by: groups that a node has, too, and its own."""

    broker_web_service_url: str = field(
        "",
        name="brokerWebServiceURL",
        check=_nodes_fault,
        description="HTTP ports of some nodes, http://host:port,host:port, or https:// for those "
        "with TLS. The proxy finds the other nodes by them.",
    )
    cluster_name: str = field(
        "standalone", min_length=1, description="Name of the cluster, as the metrics have it."
    )
    advertised_address: str = field(
        computed=socket.gethostname,
        check=_address_fault,
        description="Host name by which clients reach this proxy, or a load balancer before it; "
        "the host's own if left. Where clients use other ports, URLs: "
        "pulsar://host:port,http://host:port, with pulsar+ssl:// and https:// for TLS.",
    )
    web_service_port: int | None = field(
        8080,
        ge=0,
        le=PORT_MAX,
        description="Port of look-ups and administration; 0: any free one; empty: none without "
        "TLS.",
    )
    web_service_port_tls: int | None = field(
        None,
        ge=0,
        le=PORT_MAX,
        description="As webServicePort, with TLS; 0: any free one; empty: none.",
    )
    service_port: int | None = field(
        6650,
        ge=0,
        le=PORT_MAX,
        description="Port of the binary protocol, which clients speak; 0: any free one; empty: "
        "none without TLS.",
    )
    service_port_tls: int | None = field(
        None,
        ge=0,
        le=PORT_MAX,
        description="As servicePort, with TLS; 0: any free one; empty: none.",
    )

    @property
    def tls(self) -> TlsFields:
        """A node's, without certificates of clients: a token says who somebody is."""
        return TlsFields.part_of(self)

    @property
    def authentication(self) -> AuthenticationFields:
        """A node's, by tokens alone, which need nothing but a key at the edge of a network."""
        return AuthenticationFields.part_of(self).but({"authentication_providers": TOKEN})

    @property
    def broker_client(self) -> BrokerClientFields:
        """A node's, by a token, which can change while links are open."""
        found = BrokerClientFields.part_of(self)
        plugin = TOKEN if self.broker_client_authentication_parameters else ""
        return found.but({"broker_client_authentication_plugin": plugin})

    def url_of(self, field: str) -> str:
        """The URL by which clients reach the port of that field; "" for a port that is off."""
        port: int | None = getattr(self, field)
        if port is None:
            return ""
        told, scheme = _urls_in(self.advertised_address), _SCHEMES[field]
        # A port that has no URL is at the host of the first one.
        host = next(iter(told.values())).rpartition(":")[0] if told else self.advertised_address
        return f"{scheme}://{told.get(scheme) or f'{host}:{port}'}"

    @property
    def web_nodes(self) -> tuple[str, ...]:
        """host:port of the nodes' HTTP ports that are named."""
        return addresses_in(self.broker_web_service_url)

    @property
    def is_tls_with_nodes(self) -> bool:
        """True if the proxy speaks TLS with nodes."""
        return self.broker_web_service_url.strip().startswith(f"{_SECURE}:")


def load_proxy_settings(
    file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]
) -> ProxySettings:
    """Settings from all three sources, as a node's. Raises SettingsError."""
    own = {name: value for name, value in environment.items() if name != _OF_THE_IMAGE}
    return read_settings(ProxySettings, file, own, overrides, _contradictions)


def _contradictions(settings: ProxySettings) -> Iterator[tuple[tuple[str, ...], str]]:
    with_tls = [port for port in (WEB_TLS, BINARY_TLS) if getattr(settings, port) is not None]
    yield from settings.tls.tls_problems(
        written_name(ProxySettings, with_tls[0]) if with_tls else ""
    )
    for plain, tls in ((WEB, WEB_TLS), (BINARY, BINARY_TLS)):
        if getattr(settings, plain) is None and getattr(settings, tls) is None:
            names = written_name(ProxySettings, plain), written_name(ProxySettings, tls)
            yield names, f"neither {names[0]} nor {names[1]} is given: a proxy needs one of them"
    has_key = settings.token_secret_key or settings.token_public_key
    if settings.authentication_enabled and not has_key:
        yield (
            ("authenticationEnabled", "tokenSecretKey", "tokenPublicKey"),
            "authenticationEnabled needs tokenSecretKey or tokenPublicKey, which verify tokens",
        )
    if settings.broker_client_authentication_parameters and not settings.authentication_enabled:
        yield (
            ("authenticationEnabled", "brokerClientAuthenticationParameters"),
            (
                "brokerClientAuthenticationParameters needs authenticationEnabled: else nodes "
                "would believe this proxy of clients of whom it has asked nothing"
            ),
        )
    if not settings.broker_web_service_url.strip():
        yield (
            ("brokerWebServiceURL",),
            (
                "no node is named: give brokerWebServiceURL, http://host:port of one node or more; "
                "the others are found by it"
            ),
        )
