"""Settings of a node's or a proxy's credentials for nodes, and of its trusted authorities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anabranch.broker.settings.fields import SettingFields, field
from anabranch.broker.settings.security import CERTIFICATE, TOKEN, is_path, path_of

_PLUGIN: Final = "brokerClientAuthenticationPlugin"
_PARAMETERS: Final = "brokerClientAuthenticationParameters"
_OWN: Final = ("brokerClientCertificateFilePath", "brokerClientKeyFilePath")


def _file_fault(value: str) -> str:
    if not value or is_path(value):
        return ""
    return "write file:///path of the file that has the token: secrets are no settings"


def _plugin_fault(value: str) -> str:
    is_known = value in ("", TOKEN, CERTIFICATE)
    return "" if is_known else f"{value!r} is none of {TOKEN}, {CERTIFICATE}"


class NodeTokenFields(SettingFields):
    """A node's and a proxy's, named as in Pulsar's broker.conf and proxy.conf.

    No secret is a setting: files are.
    """

    broker_client_authentication_parameters: str = field(
        "",
        check=_file_fault,
        is_told=False,
        description="File of the token that nodes are shown, file:///path; empty: none.",
    )
    broker_client_trust_certs_file_path: Path | None = field(
        None,
        description="PEM file of the authorities of nodes' certificates; by default the system's.",
    )


class BrokerClientFields(NodeTokenFields):
    """A node's own, besides."""

    broker_client_authentication_plugin: str = field(
        "",
        check=_plugin_fault,
        description="Credentials shown to nodes: token or tls (a certificate); empty: none.",
    )
    broker_client_certificate_file_path: Path | None = field(
        None, description="PEM file of the certificate to show nodes."
    )
    broker_client_key_file_path: Path | None = field(
        None, description="PEM file of that certificate's private key, without a password."
    )

    @property
    def broker_client_token_file(self) -> Path | None:
        """The file of its token; None where it shows none."""
        if self.broker_client_authentication_plugin != TOKEN:
            return None
        return path_of(self.broker_client_authentication_parameters)

    def broker_client_problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the settings that are missing."""
        given = (self.broker_client_certificate_file_path, self.broker_client_key_file_path)
        if (given[0] is None) != (given[1] is None):
            yield _OWN, f"{' and '.join(_OWN)} go together: name both PEM files, or neither"
        if self.broker_client_authentication_plugin == CERTIFICATE and given[0] is None:
            yield (
                (_PLUGIN, *_OWN),
                f"{_PLUGIN} is {CERTIFICATE}, which needs {' and '.join(_OWN)}",
            )
        if (
            self.broker_client_authentication_plugin == TOKEN
            and not self.broker_client_authentication_parameters
        ):
            yield (
                (_PLUGIN, _PARAMETERS),
                f"{_PLUGIN} is {TOKEN}, which needs {_PARAMETERS}: the file that has the token",
            )
