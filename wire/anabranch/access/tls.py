"""The TLS of a client: the authorities that it trusts, and the certificate that it shows, if any.

TLS 1.2 and 1.3. A trusted authority must have signed a server's certificate for the host that was
asked for. A look at the files precedes each connection, so that it uses their present content.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from anabranch.core.errors import InvalidInputError

_BYTES_MAX: Final = 1 << 20
_logger = logging.getLogger("anabranch.access")


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The way of a client to ports with TLS.

    `ca_file` has certificates of the trusted authorities. Without it the client trusts those of the
    system. `certificate_file` and `key_file` are its own certificate, for servers that ask for one.
    All are PEM. Raises InvalidInputError if one of these two is missing.
    """

    ca_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    dangerously_accept_any_host_name: bool = False

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise InvalidInputError("a certificate goes with its key: give both files, or neither")

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are given."""
        given = (self.ca_file, self.certificate_file, self.key_file)
        return tuple(Path(file) for file in given if file is not None)


class TlsFiles:
    """The TLS that a `Tls` describes, from the present content of its files. Raises
    InvalidInputError.

    Use it from one thread at a time.
    """

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self._seen = digest_of(tls.files)
        self._context = client_context(tls)
        self._is_behind = False  # True: the last seen files could not be used

    def context(self) -> ssl.SSLContext:
        """Returns the context for the next connection: a new one after a file has changed.

        Files that are of no use, for example if one of two is not written yet, change nothing.
        """
        found = digest_of(self.tls.files)
        is_news = found != self._seen
        if is_news or self._is_behind:
            self._seen = found
            try:
                self._context = client_context(self.tls)
                self._is_behind = False
            except InvalidInputError as error:
                self._is_behind = True
                if is_news:
                    _logger.warning("what was read before goes on: %s", error)
        return self._context


def client_context(tls: Tls) -> ssl.SSLContext:
    """Returns the TLS of a client. Raises InvalidInputError."""
    context = ssl.create_default_context() if tls.ca_file is None else _trusting(tls.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = not tls.dangerously_accept_any_host_name
    if tls.certificate_file is not None and tls.key_file is not None:
        for file, what in ((tls.certificate_file, "certificate"), (tls.key_file, "key")):
            _read(file, what)  # OpenSSL does not say which of the two it could not read
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, no_password)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidInputError(
                f"{tls.certificate_file} and {tls.key_file} are no certificate and its key in "
                f"PEM: {openssl_words(error)}"
            ) from None
    return context


def _trusting(file: Path | str) -> ssl.SSLContext:
    """Returns a context that trusts those authorities alone. Raises InvalidInputError."""
    authorities = _read(file, "authorities")
    why = "none is in it"
    if authorities.strip():  # to OpenSSL nothing at all would mean those of the system
        try:
            context = ssl.create_default_context(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            why = openssl_words(error)
        else:
            if context.cert_store_stats()["x509_ca"]:
                return context
    raise InvalidInputError(f"{file} has no certificates of authorities in PEM: {why}")


def reason_of(error: ssl.SSLError, host: str) -> str:
    """Returns the reason why TLS with that host failed, with a remedy.
    `error` is from a hand-shake.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        if error.verify_code in _OF_NAMES:
            return (
                f"its certificate is not for {host}: {why}. Ask for it by a name that is in it, or "
                "have it made for this one"
            )
        return (
            f"its certificate is not trusted: {why}. Give the file of the authority that has "
            "signed it (ca_file, --tls-ca)"
        )
    said = openssl_words(error)
    if "certificate required" in said or "alert" in said:
        return f"it refuses the hand-shake: {said}. Does it ask for a certificate, and trust it?"
    return f"the hand-shake failed: {said}. Is it a port with TLS?"


_OF_NAMES: Final = frozenset({62, 63, 64})  # host, e-mail address and IP address, by OpenSSL


def _read(file: Path | str, what: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            return stream.read(_BYTES_MAX).decode("ascii")
    except OSError as error:
        raise InvalidInputError(
            f"{file}, which has the {what}, cannot be read: {error.strerror}; correct the path or "
            "its rights"
        ) from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{file}, which has the {what}, is not in PEM") from None


def digest_of(files: tuple[Path, ...]) -> bytes:
    """Returns a digest of the contents. Times and inodes tell nothing if somebody turns links."""
    digest = hashlib.sha256()
    for file in files:
        try:
            with file.open("rb") as stream:
                content = stream.read(_BYTES_MAX)
        except OSError as error:
            digest.update(f"{file} {error.errno}".encode())
        else:
            digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


def no_password() -> NoReturn:
    """Refuses a key that has a password: OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a password; give one without")


def openssl_words(error: Exception) -> str:
    """Returns OpenSSL's word on an error."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not readable").lower().replace("_", " ")
    return str(error)
