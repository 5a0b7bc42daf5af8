"""An authority of a test's own: certificates for servers and clients, good ones and bad ones."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = timedelta(hours=1)


class Issued(NamedTuple):
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs what it is asked to."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self._own = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + 24 * HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, SHA256())
        )
        self.pem = self._own.public_bytes(Encoding.PEM)
        self.file = folder / "authority.pem"
        self.file.write_bytes(self.pem)

    def issue(
        self, name: str, *, host: str = "127.0.0.1", ends: timedelta = HOUR, server: bool = False
    ) -> Issued:
        """A certificate of this common name, for a server at `host` or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        now = datetime.now(UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * HOUR)
            .not_valid_after(now + ends)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if server:
            address = x509.IPAddress(ip_address(host))
            built = built.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        certificate = built.sign(self._key, SHA256())
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return issued

    def client(self, issued: Issued | None = None) -> ssl.SSLContext:
        """The TLS of a client that trusts this authority, with that certificate."""
        context = ssl.create_default_context(cafile=str(self.file))
        if issued is not None:
            context.load_cert_chain(*issued)
        return context


def tls_settings(server: Issued, **more: object) -> dict[str, object]:
    """The settings of a node that has this certificate, on free ports or those that are given."""
    return {
        "tlsCertificateFilePath": str(server.certificate),
        "tlsKeyFilePath": str(server.key),
        **more,
    }
