"""SASL for connections of our own to a guarded Kafka: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC
7628) with tokens of a provider or of OpenID Connect.

The module reads librdkafka's properties in librdkafka's way. Only librdkafka has other mechanisms.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from anabranch.access.errors import CredentialsError
from anabranch.access.kafka_tokens import OAUTH_CB, TokenCache
from anabranch.wire.errors import WireError
from anabranch.wire.kafka import oidc

_SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_BEARER: Final = "OAUTHBEARER"
_METHOD: Final = "sasl.oauthbearer.method"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_WORDS: Final = (("sasl.username",), ("sasl.password",))
PROPERTIES: Final = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        OAUTH_CB,
        _METHOD,
        _EXTENSIONS,
        *oidc.PROPERTIES,
    }
)
_TOKEN_S_MAX: Final = 4.0
_PROTOCOLS: Final = ("sasl_plaintext", "sasl_ssl")
_NO_BINDING: Final = "n,,"  # the channel's
# Fewer are soon guessed through, as Kafka's own clients hold; librdkafka takes no more either.
_ROUNDS: Final = range(4_096, 1_000_001)

Exchange = Callable[[bytes], bytes]  # returns the server's answer to these words
Talk = Generator[bytes, bytes, None]  # yields what is said, and is sent what the server answers


class SaslError(WireError):
    """Kafka does not accept our credentials, or cannot show that it knows the password itself."""


def is_guarded(kafka: Mapping[str, Any]) -> bool:
    """Returns True if SASL guards a Kafka with these properties."""
    return str(kafka.get("security.protocol", "")).lower() in _PROTOCOLS


def mechanism(kafka: Mapping[str, Any]) -> str:
    """Returns the mechanism of these properties, "" if this module cannot speak it with them."""
    return "" if unsupported(kafka) else _named(kafka)


def unsupported(kafka: Mapping[str, Any]) -> str:
    """Returns the reason why this module cannot speak the mechanism of these properties, "" if it
    can.
    """
    named = _named(kafka)
    if named not in ("PLAIN", *_SCRAM, _BEARER):
        said = (
            f"sasl.mechanism={named} is not spoken here" if named else "sasl.mechanism is missing"
        )
        return f"{said}: give PLAIN, {', '.join(_SCRAM)} or {_BEARER}"
    if named == _BEARER and OAUTH_CB in kafka:
        return ""
    if named == _BEARER and str(kafka.get(_METHOD, "")).lower() != "oidc":
        return f"{_BEARER} wants a token provider here, or {_METHOD}=oidc: give one of them"
    needed = oidc.NEEDED if named == _BEARER else _WORDS
    missing = [names[0] for names in needed if not any(name in kafka for name in names)]
    return f"sasl.mechanism={named} wants {' and '.join(missing)}" if missing else ""


def remedy(kafka: Mapping[str, Any]) -> str:
    """Returns the advice for credentials that Kafka does not accept."""
    if OAUTH_CB in kafka:
        return "let its listener trust who gives the token, and check the token provider"
    if _named(kafka) == _BEARER:
        return "let its listener trust who gives the token, and correct sasl.oauthbearer.scope"
    return "correct sasl.mechanism, sasl.username and sasl.password"


def conversation(kafka: Mapping[str, Any], nonce: Callable[[], str] = secrets.token_hex) -> Talk:
    """Returns the talk with the server, for `said`.

    A step may take long: one of SCRAM computes for tenths of a second, the first of OAUTHBEARER
    asks for a token. Raises SaslError, and OSError if nobody gives a token just now.
    """
    named = mechanism(kafka)
    if named == _BEARER:
        return _bearer(kafka)
    user, password = str(kafka["sasl.username"]), str(kafka["sasl.password"])
    if named == "PLAIN":
        return _plain(user, password)
    return _scram(_SCRAM[named], user, password, nonce())


def said(talk: Talk, answer: bytes | None = None) -> bytes | None:
    """Returns the next words of the talk, the first ones without an answer.
    Returns None at its end. Raises SaslError.
    """
    try:
        return next(talk) if answer is None else talk.send(answer)
    except StopIteration:
        return None


def speak(
    kafka: Mapping[str, Any], exchange: Exchange, nonce: Callable[[], str] = secrets.token_hex
) -> None:
    """Logs in. Raises SaslError, and the errors of `exchange`."""
    talk = conversation(kafka, nonce)
    words = said(talk)
    while words is not None:
        words = said(talk, exchange(words))


def _named(kafka: Mapping[str, Any]) -> str:
    return str(kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", ""))).upper()


def _bearer_of(kafka: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Returns the token, and its extensions as they are said."""
    cache = kafka.get(OAUTH_CB)
    if isinstance(cache, TokenCache):
        try:
            token = cache.wait(_TOKEN_S_MAX)
        except CredentialsError as error:
            raise ConnectionError(str(error)) from None  # the provider may come to itself
        return token.value, [f"{name}={value}" for name, value in token.extensions.items()]
    try:
        found = oidc.token(kafka)
    except oidc.TokenError as error:
        raise SaslError(str(error)) from None
    return found, [*filter(None, map(str.strip, str(kafka.get(_EXTENSIONS, "")).split(",")))]


def _forget(kafka: Mapping[str, Any]) -> None:
    if isinstance(cache := kafka.get(OAUTH_CB), TokenCache):
        cache.refuse()
    else:
        oidc.forget(kafka)


def _bearer(kafka: Mapping[str, Any]) -> Talk:
    token, extensions = _bearer_of(kafka)
    parts = (_NO_BINDING, f"auth=Bearer {token}", *extensions, "", "")
    refusal = b"?"
    try:
        refusal = yield "\x01".join(parts).encode()
        if refusal:
            yield b"\x01"  # Kafka tells more only then
            raise SaslError("it does not take the token")
    finally:
        if refusal:
            _forget(kafka)


def _plain(user: str, password: str) -> Talk:
    yield f"\0{user}\0{password}".encode()


def _scram(digest: str, user: str, password: str, nonce: str) -> Talk:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    try:
        challenge = (yield f"{_NO_BINDING}{first}".encode()).decode()
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
    last = yield f"{bare},p={base64.b64encode(proof).decode()}".encode()
    own = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(last.split(b",")[0], b"v=" + base64.b64encode(own)):
        raise SaslError("whoever answers as Kafka does not know the password: check its address")


def _attributes(said: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in said.split(",") if "=" in part)
