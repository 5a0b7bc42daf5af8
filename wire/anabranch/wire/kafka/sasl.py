"""How a connection of our own says who it is, where SASL guards Kafka: PLAIN and SCRAM (RFC 5802).

librdkafka's properties are read as it reads them. Other mechanisms are its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.wire.errors import WireError

_SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PROPERTIES: Final = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
)
_PROTOCOLS: Final = ("sasl_plaintext", "sasl_ssl")
_NO_BINDING: Final = "n,,"  # the channel's
# Fewer are soon guessed through, as Kafka's own clients hold; librdkafka takes no more either.
_ROUNDS: Final = range(4_096, 1_000_001)

Exchange = Callable[[bytes], bytes]  # what the server answers to that


class SaslError(WireError):
    """Kafka does not take who we say, or cannot show that it knows the password itself."""


def is_guarded(kafka: Mapping[str, Any]) -> bool:
    """Whether SASL guards a Kafka with these properties."""
    return str(kafka.get("security.protocol", "")).lower() in _PROTOCOLS


def mechanism(kafka: Mapping[str, Any]) -> str:
    """What these properties name, if it can be spoken here with them; else ""."""
    named = str(kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", ""))).upper()
    has_words = "sasl.username" in kafka and "sasl.password" in kafka
    return named if has_words and named in ("PLAIN", *_SCRAM) else ""


def speak(
    kafka: Mapping[str, Any], exchange: Exchange, nonce: Callable[[], str] = secrets.token_hex
) -> None:
    """Says who we are. Raises SaslError, and what `exchange` does."""
    user, password = str(kafka["sasl.username"]), str(kafka["sasl.password"])
    named = mechanism(kafka)
    if named == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
        return
    _scram(_SCRAM[named], user, password, exchange, nonce())


def _scram(digest: str, user: str, password: str, exchange: Exchange, nonce: str) -> None:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    try:
        challenge = exchange(f"{_NO_BINDING}{first}".encode()).decode()
        told = _attributes(challenge)
        both, salt, rounds = told["r"], base64.b64decode(told["s"], validate=True), int(told["i"])
    except (KeyError, ValueError):
        raise SaslError("Kafka's challenge of SCRAM cannot be read") from None
    if not both.startswith(nonce):
        raise SaslError("Kafka answered another challenge of SCRAM")
    if rounds not in _ROUNDS:
        raise SaslError(
            f"Kafka asks for {rounds} iterations of SCRAM: {_ROUNDS[0]} to {_ROUNDS[-1]} are taken"
        )
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
    binding = base64.b64encode(_NO_BINDING.encode()).decode()
    bare = f"c={binding},r={both}"
    signed = f"{first},{challenge},{bare}".encode()
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    last = exchange(f"{bare},p={base64.b64encode(proof).decode()}".encode())
    own = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(last.split(b",")[0], b"v=" + base64.b64encode(own)):
        raise SaslError("whoever answers as Kafka does not know the password: check its address")


def _attributes(said: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in said.split(",") if "=" in part)
