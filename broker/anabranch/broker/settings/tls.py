"""The settings of encryption: a server's certificate, and which of clients it trusts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anabranch.broker.settings.fields import SettingFields, field

_FILES: Final = ("tlsCertificateFilePath", "tlsKeyFilePath")


class CertificateFields(SettingFields):
    """A node's and a proxy's, named as in Pulsar's broker.conf."""

    tls_certificate_file_path: Path | None = field(
        None,
        description="PEM file of the server's certificate and its intermediate ones.",
    )
    tls_key_file_path: Path | None = field(
        None, description="PEM file of the certificate's private key, without a password."
    )


class TlsFields(CertificateFields):
    """A node's own, besides."""

    tls_trust_certs_file_path: Path | None = field(
        None,
        description="PEM file of the authorities of clients' certificates; without it, clients are "
        "asked for none.",
    )
    tls_require_trusted_client_cert_on_connect: bool = field(
        False, description="A client without a trusted certificate is disconnected."
    )
    tls_cert_refresh_check_duration_sec: float = field(
        300.0,
        ge=0.1,
        le=86_400,
        description="Time between checks of the files of certificates and keys; new connections "
        "use the new ones.",
    )

    def tls_problems(self, port: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields missing settings; `port`: the setting of a TLS port that is on, "" for none."""
        given = (self.tls_certificate_file_path, self.tls_key_file_path)
        missing = [name for name, value in zip(_FILES, given, strict=True) if value is None]
        if port and missing:
            yield (
                (port, *_FILES),
                (
                    f"{port} is given without {' and '.join(missing)}: a server must show a "
                    "certificate; name the PEM files"
                ),
            )
        if self.tls_require_trusted_client_cert_on_connect and not self.tls_trust_certs_file_path:
            yield (
                ("tlsRequireTrustedClientCertOnConnect", "tlsTrustCertsFilePath"),
                (
                    "tlsRequireTrustedClientCertOnConnect needs tlsTrustCertsFilePath, the "
                    "authorities whose certificates of clients are trusted"
                ),
            )
