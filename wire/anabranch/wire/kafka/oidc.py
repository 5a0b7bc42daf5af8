"""Tokens of an OpenID Connect provider, for a program by its own secret (RFC 6749, section 4.4).

The module reads librdkafka's properties in librdkafka's way. Connections come and go, so a token is
kept for most of its lifetime.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

from anabranch.access.kafka_tokens import TOKEN
from anabranch.wire.errors import WireError

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
# Each property that has to be there, under any of its names.
NEEDED: Final = (
    (_URL,),
    ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
)
_SCOPE: Final = "sasl.oauthbearer.scope"
_AUTHORITIES: Final = ("https.ca.location", "https.ca.pem")
PROPERTIES: Final = frozenset(
    {_SCOPE, *_AUTHORITIES, *(name for names in NEEDED for name in names)}
)
_ASK_S_MAX: Final = 4.0
_OF_LIFETIME: Final = 0.8
_CODE: Final = re.compile(r"\w{1,40}")

_kept: dict[tuple[str | None, ...], tuple[str, float]] = {}  # and until when, by time.monotonic


class TokenError(WireError):
    """The provider gives no token for these properties."""


def token(kafka: Mapping[str, Any]) -> str:
    """Returns a token, kept or new. Blocks.
    Raises TokenError, and OSError if the caller may ask again.
    """
    key = _key(kafka)
    kept, until = _kept.get(key, ("", 0.0))
    if time.monotonic() < until:
        return kept
    asked_at = time.monotonic()
    told = _told(*key)
    found = told.get("access_token")
    if not isinstance(found, str) or not TOKEN.fullmatch(found):
        raise TokenError(f"what answers at {_URL} gives no token: correct the address")
    lifetime_s = told.get("expires_in")
    if isinstance(lifetime_s, int | float) and lifetime_s > 0:
        _kept[key] = (found, asked_at + _OF_LIFETIME * lifetime_s)
    return found


def forget(kafka: Mapping[str, Any]) -> None:
    """Forgets the token, because Kafka does not accept it."""
    _kept.pop(_key(kafka), None)


def _key(kafka: Mapping[str, Any]) -> tuple[str, str, str, str, str | None, str | None]:
    url, user, secret = (
        next(str(kafka[name]) for name in names if name in kafka) for names in NEEDED
    )
    file, pem = map(kafka.get, _AUTHORITIES)
    return url, user, secret, str(kafka.get(_SCOPE, "")), file, pem


def _told(
    url: str, user: str, secret: str, scope: str, file: str | None, pem: str | None
) -> dict[str, Any]:
    """Returns the provider's answer. Its text is in no error, because it may hold a secret."""
    import httpx  # it takes its time, and few need it

    asked = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    try:  # the system's authorities if none are given, as librdkafka does
        trusted = ssl.create_default_context(cafile=file, cadata=pem)
    except (OSError, ValueError):
        raise TokenError(f"{' or '.join(_AUTHORITIES)} has no certificate in PEM") from None
    try:
        answer = httpx.post(
            url, data=asked, auth=(user, secret), timeout=_ASK_S_MAX, verify=trusted
        )
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise TokenError(f"{_URL} is no address: give one that begins with https://") from None
    except httpx.HTTPError as error:
        raise ConnectionError(f"{_URL} cannot be reached: {type(error).__name__}") from None
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise ConnectionError(f"{_URL} fails with {answer.status_code}")
    if answer.is_success and isinstance(told, dict):
        return told
    code = str(told.get("error", "")) if isinstance(told, dict) else ""
    why = f" ({code})" if _CODE.fullmatch(code) else ""
    raise TokenError(
        f"{_URL} answers {answer.status_code}{why}: correct it, sasl.oauthbearer.client.id, "
        "sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
    )
