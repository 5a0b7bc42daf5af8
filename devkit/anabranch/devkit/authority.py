"""The authority of `anabranch dev --secure`, and the certificates that it signs.

It is made once, and kept, so that a client's trust in it lasts. Only its owner can read the
secrets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from anabranch.core.errors import InvalidInputError

OF_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
OF_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_HOSTS: Final = ("127.0.0.1", "::1")
_AUTHORITY_DAYS: Final = 3_650
_EARLIER: Final = timedelta(minutes=5)  # clocks differ

_Key = ec.EllipticCurvePrivateKey


class DevAuthority:
    """The authority in a folder, made if it is not there. Raises InvalidInputError."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        self._certificate, self._key = self._found() or self._made()

    def issue(
        self, name: str, days: int, usages: Sequence[ObjectIdentifier]
    ) -> tuple[bytes, bytes]:
        """Returns a certificate for that common name, and its key, as PEM.

        A certificate for servers is for this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        begun = (
            _begun(_name(name), key, self._certificate.subject, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(signer, critical=False)
        )
        if OF_SERVER in usages:
            names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(h)) for h in _HOSTS)]
            begun = begun.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return begun.sign(self._key, SHA256()).public_bytes(Encoding.PEM), _pem(key)

    def _found(self) -> tuple[x509.Certificate, _Key] | None:
        if not (self.file.exists() and self._key_file.exists()):
            return None
        try:
            found = x509.load_pem_x509_certificate(self.file.read_bytes())
            key = load_pem_private_key(self._key_file.read_bytes(), None)
        except ValueError:
            raise self._not_ours() from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise self._not_ours()
        return found, key

    def _made(self) -> tuple[x509.Certificate, _Key]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Anabranch dev")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            _begun(name, key, name, _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, SHA256())
        )
        write_whole(self._key_file, _pem(key))
        write_whole(self.file, made.public_bytes(Encoding.PEM), 0o644)
        return made, key

    def _not_ours(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self.file} and {self._key_file} are no authority of `anabranch dev --secure`: "
            f"remove {self.file.parent}, and it is made anew"
        )


def write_whole(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Writes the file beside its place, and moves it there at once. It replaces a former file."""
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
    beside.replace(file)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _begun(subject: x509.Name, key: _Key, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
