"""The TLS of a server: its certificate, and the authorities of clients that it trusts.

It has TLS 1.2 and 1.3 with the suites of the OpenSSL that Python is built with, the server's order
first. A connection that is made anew shows its certificate anew, because there are no tickets. So a
client that is no longer trusted cannot come back by a former session.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import msgspec

from anabranch.access.tls import no_password, openssl_words
from anabranch.broker.errors import StartError
from anabranch.broker.security.files import ReadAgain, read_file
from anabranch.broker.settings.tls import TlsFields

_CERTIFICATE: Final = "tlsCertificateFilePath"
_KEY: Final = "tlsKeyFilePath"
_TRUSTED: Final = "tlsTrustCertsFilePath"


class TlsFiles(msgspec.Struct, frozen=True):
    """The files of a server's TLS.

    `trusted`: authorities of clients; None: clients show no certificate. `required`: they have to.
    """

    certificate: Path
    key: Path
    trusted: Path | None = None
    required: bool = False

    @property
    def all(self) -> tuple[Path, ...]:
        """All of the files."""
        return tuple(file for file in (self.certificate, self.key, self.trusted) if file)


def files_of(settings: TlsFields) -> TlsFiles | None:
    """The files that the settings name; None without a certificate."""
    certificate, key = settings.tls_certificate_file_path, settings.tls_key_file_path
    if certificate is None or key is None:
        return None
    return TlsFiles(
        certificate,
        key,
        settings.tls_trust_certs_file_path,
        settings.tls_require_trusted_client_cert_on_connect,
    )


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The TLS of a server that has these files. Raises StartError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_COMPRESSION
        | ssl.OP_NO_RENEGOTIATION
        | ssl.OP_NO_TICKET
        | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.num_tickets = 0
    for file, setting in ((files.certificate, _CERTIFICATE), (files.key, _KEY)):
        read_file(file, setting)  # OpenSSL does not say which of the two it could not read
    try:
        context.load_cert_chain(files.certificate, files.key, no_password)
    except (ssl.SSLError, ValueError) as error:
        raise StartError(
            f"{files.certificate}, which is {_CERTIFICATE}, and {files.key}, which is {_KEY}, are "
            f"no certificate and its key in PEM: {openssl_words(error)}; correct the files"
        ) from None
    if files.trusted is not None:
        _trust(context, files.trusted)
        context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    return context


def read_again(files: TlsFiles) -> ReadAgain[ssl.SSLContext]:
    """The TLS of a server, made anew when a file has changed. Raises StartError."""
    return ReadAgain("tls", files.all, lambda: server_context(files))


def _trust(context: ssl.SSLContext, file: Path) -> None:
    content = read_file(file, _TRUSTED)
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise StartError(
            f"{file}, which is {_TRUSTED}, has no certificates in PEM: {openssl_words(error)}; "
            "correct the file"
        ) from None
    if not context.cert_store_stats()["x509_ca"]:
        raise StartError(
            f"{file}, which is {_TRUSTED}, has no certificate of an authority: give those that "
            "sign clients' certificates, not the clients' own"
        )
