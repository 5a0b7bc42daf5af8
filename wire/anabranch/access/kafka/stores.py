"""Reads certificates and keys out of PEM, JKS and PKCS12, as PEM in memory.

The first bytes tell the form: names and types lie, since Java reads PKCS12 under the type JKS, too.
PKCS12 needs `cryptography`, which the SDK alone does not bring. The one library for JKS (pyjks) has
had no release since 2020. Its form is small, and a key in it is hidden by SHA-1 alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.access.kafka.properties import NotTakenError

if TYPE_CHECKING:
    from cryptography import x509

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # the second is JCEKS
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KEY, _CERTIFICATE = 1, 2  # kinds of entries of a JKS
_SALT: Final = 20
# The OID of Sun's key protector, 1.3.6.1.4.1.42.2.17.1.1, in DER.
_SUN: Final = bytes.fromhex("060a2b060104012a02110101")
_CUT_SHORT: Final = "it is cut short: copy it again"
_CONVERT: Final = (
    "make it PKCS12: keytool -importkeystore -srckeystore FILE -destkeystore NEW.p12 "
    "-deststoretype PKCS12"
)


class KeyStore(NamedTuple):
    """What a store has, in PEM; `chain` begins with the certificate of `key`."""

    trusted: tuple[str, ...] = ()
    key: str = ""
    chain: tuple[str, ...] = ()
    is_pem: bool = False  # librdkafka reads such a file itself
    is_javas: bool = False  # a copy of the authorities that Java brings, and of no others

    def __repr__(self) -> str:
        return f"KeyStore({len(self.trusted)} trusted, {len(self.chain)} of its own)"


def read(content: bytes, password: str | None, key_password: str | None = None) -> KeyStore:
    """Returns what a JKS or PKCS12 store has. Raises NotTakenError.

    Trusted certificates of a JKS need no password. A key of a JKS may have one of its own.
    """
    if content.startswith(_JKS):
        try:
            return _jks(content, key_password or password)
        except struct.error:
            raise NotTakenError(_CUT_SHORT) from None
    if content.startswith(b"\x30"):
        return _pkcs12(content, password)
    if b"-----BEGIN " in content:
        return KeyStore(is_pem=True)
    raise NotTakenError(f"it is neither PEM nor JKS nor PKCS12: {_CONVERT}")


def reflowed(text: str) -> str:
    """Returns PEM with its line ends, which a value of one line has lost. Raises NotTakenError."""
    blocks = _PEM.findall(text.replace("\\n", "\n"))
    if not blocks:
        raise NotTakenError("it is not PEM: give it with its BEGIN and END lines")
    return "".join(
        f"-----BEGIN {kind}-----{body}-----END {kind}-----\n"
        if ":" in body  # headers, whose line ends count
        else _pem(kind, "".join(body.split()))
        for kind, body in blocks
    )


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 4  # behind the first bytes

    def number(self, form: str = ">I") -> int:
        (found,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def text(self) -> str:
        return self.bytes(self.number(">H")).decode("utf-8", "replace")

    def bytes(self, count: int) -> bytes:
        found = self._content[self._at : self._at + count]
        if len(found) < count:
            raise NotTakenError(_CUT_SHORT)
        self._at += count
        return found


def _jks(content: bytes, password: str | None) -> KeyStore:
    reader = _Reader(content)
    version = reader.number()
    trusted, aliases = [], []
    key, chain = "", tuple[str, ...]()

    def certificate() -> str:
        if version > 1:
            reader.text()  # its kind, which is X.509
        return _certificate(reader.bytes(reader.number()))

    for _ in range(reader.number()):
        kind, alias = reader.number(), reader.text()
        reader.number(">Q")  # the time at which it was made
        if kind == _CERTIFICATE:
            trusted.append(certificate())
            aliases.append(alias)
        elif kind == _KEY:
            hidden = reader.bytes(reader.number())
            certificates = tuple(certificate() for _ in range(reader.number()))
            if not key:
                key, chain = _sun_key(hidden, password), certificates
        else:
            raise NotTakenError(f"it has an entry that is neither key nor certificate: {_CONVERT}")
    return KeyStore(tuple(trusted), key, chain, is_javas=_are_javas(aliases))


def _sun_key(hidden: bytes, password: str | None) -> str:
    """Returns the key that Sun's protector hides; "" without a password, as for a truststore."""
    if password is None:
        return ""
    at = hidden.find(_SUN)
    if at < 0:
        raise NotTakenError(f"its key is under another cipher than Java's own: {_CONVERT}")
    secret = password.encode("utf-16-be")
    told = _content_of(hidden[at + len(_SUN) + 2 :])  # behind the NULL of its parameters
    digest, masked, check = told[:_SALT], told[_SALT:-_SALT], told[-_SALT:]
    stream = b""
    while len(stream) < len(masked):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    plain = bytes(a ^ b for a, b in zip(masked, stream, strict=False))
    if hashlib.sha1(secret + plain, usedforsecurity=False).digest() != check:
        raise NotTakenError("its password does not open the key: correct it")
    return _pem("PRIVATE KEY", base64.b64encode(plain).decode())


def _content_of(octets: bytes) -> bytes:
    """Returns the content of an octet string in DER."""
    size = octets[1] if len(octets) > 1 else 0
    more = size & 0x7F if size & 0x80 else 0
    if more:
        size = int.from_bytes(octets[2 : 2 + more], "big")
    return octets[2 + more : 2 + more + size]


def _pkcs12(content: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise NotTakenError(
            "it is PKCS12, which needs a package that is missing: pip install cryptography, or "
            "give PEM"
        ) from None

    def pem(each: x509.Certificate) -> str:
        return _certificate(each.public_bytes(serialization.Encoding.DER))

    try:
        store = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except Exception:  # noqa: BLE001 - of any kind; its words may have a part of the content
        raise NotTakenError(
            "its password is missing or wrong, or it is under an old cipher: correct the "
            "password, or make it anew by keytool -importkeystore of Java 17 or later"
        ) from None
    if store.key is None:
        others = tuple(pem(each.certificate) for each in store.additional_certs)
        names = [(each.friendly_name or b"").decode() for each in store.additional_certs]
        return KeyStore(others, is_javas=_are_javas(names))
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own = [] if store.cert is None else [store.cert.certificate]
    rest = [each.certificate for each in store.additional_certs]
    while own and not _is_issued(own[-1], own[-1]):
        issuer = next((each for each in rest if _is_issued(own[-1], each)), None)
        if issuer is None:
            break
        rest.remove(issuer)
        own.append(issuer)
    # Java trusts no issuer of its own key, unless a trusted entry has it as well.
    return KeyStore(tuple(map(pem, rest)), key.decode(), tuple(map(pem, own)))


def _is_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        if certificate.issuer != issuer.subject:
            return False
        certificate.verify_directly_issued_by(issuer)
    except InvalidSignature:
        return False
    except Exception:  # noqa: BLE001 - of an unknown algorithm: then it must not be trusted
        return True
    return True


def _are_javas(aliases: Sequence[str]) -> bool:
    return bool(aliases) and all(
        alias.endswith("[jdk]") or alias.startswith("debian:") for alias in aliases
    )


def _certificate(der: bytes) -> str:
    return _pem("CERTIFICATE", base64.b64encode(der).decode())


def _pem(kind: str, body: str) -> str:
    lines = "\n".join(textwrap.wrap(body, 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"
