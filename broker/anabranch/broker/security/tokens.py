"""JSON web tokens (RFC 7519): the role is the one that was signed for the client.

PyJWT verifies. This module says which key may verify by which algorithm, and which claims a token
must have. It looks at nothing that is too long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import jwt
import msgspec

from anabranch.broker.security.credentials import (
    CREDENTIAL_BYTES_MAX,
    Credentials,
    CredentialsError,
    RefusalReason,
    Verified,
)
from anabranch.broker.security.files import read_file
from anabranch.broker.security.key_sets import (
    RAISED_FOR_BAD,
    KeyFile,
    KeySource,
    VerifyingKey,
    keys_of_set,
    public_key,
    secret_key,
)
from anabranch.broker.settings.security import TOKEN, AuthenticationFields, is_path, path_of
from anabranch.core.security.principal import is_role
from anabranch.wire.supervised import kept_going

_CANDIDATES_MAX: Final = 8  # keys that are tried for a token that names none
_WHY: Final[tuple[tuple[type[Exception], RefusalReason, str], ...]] = (
    (jwt.ExpiredSignatureError, RefusalReason.EXPIRED, "the token has expired: get a new one"),
    (
        jwt.ImmatureSignatureError,
        RefusalReason.NOT_YET_VALID,
        "the token is not valid yet: see whether the clocks are right",
    ),
    (
        jwt.InvalidIssuerError,
        RefusalReason.ISSUER,
        "the token is by another issuer than tokenIssuer",
    ),
    (
        jwt.InvalidAudienceError,
        RefusalReason.AUDIENCE,
        "the token is for another audience than tokenAudience",
    ),
    (jwt.MissingRequiredClaimError, RefusalReason.MALFORMED, "the token lacks a claim"),
    (
        jwt.InvalidAlgorithmError,
        RefusalReason.ALGORITHM,
        "the token is signed by an algorithm that no key here verifies by",
    ),
    (
        jwt.InvalidSignatureError,
        RefusalReason.SIGNATURE,
        "the token's signature is by none of the keys that this node knows",
    ),
)


class TokenRules(msgspec.Struct, frozen=True):
    """The claims that a token must have; "": anything."""

    role_claim: str = "sub"
    issuer: str = ""
    audience: str = ""
    leeway_s: float = 0.0


class TokenProvider:
    """Verifies tokens by the keys of some sources."""

    method = TOKEN
    goes_by_data = True

    def __init__(self, sources: Sequence[KeySource], rules: TokenRules) -> None:
        self._sources = tuple(sources)
        self._rules = rules
        self._following: list[asyncio.Task[None]] = []

    @property
    def generation(self) -> int:
        found = 0
        for each in self._sources:  # no more than this: each request asks
            found = found * 31 + each.generation
        return found

    def takes(self, shown: Credentials) -> bool:
        return shown.method == TOKEN

    async def start(self) -> None:
        for source in self._sources:
            self._following.append(kept_going(source.follow, "token keys"))

    async def stop(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def verify(self, shown: Credentials) -> Verified:
        token = shown.data
        if len(token) > CREDENTIAL_BYTES_MAX:
            raise CredentialsError(
                RefusalReason.SIZE, f"the token has more than {CREDENTIAL_BYTES_MAX} bytes"
            )
        algorithm, kid = _header(token)
        found = self._candidates(algorithm, kid)
        if not found and kid:
            for source in self._sources:
                await source.look_for(kid)
            found = self._candidates(algorithm, kid)
        if not found:
            raise self._unknown(kid)
        return self._said(token, found)

    def _candidates(self, algorithm: str, kid: str) -> list[VerifyingKey]:
        """Returns the keys that may have signed it: those of its `kid`, else those without."""
        known = [key for source in self._sources for key in source.keys]
        named = [key for key in known if key.kid == kid] if kid else known
        named = named or [key for key in known if not key.kid]
        return [key for key in named if algorithm in key.algorithms][:_CANDIDATES_MAX]

    def _unknown(self, kid: str) -> CredentialsError:
        known = [key for source in self._sources for key in source.keys]
        if not known:
            return CredentialsError(
                RefusalReason.BUSY, "this node has no key to verify tokens by at present; try again"
            )
        if kid and all(key.kid for key in known) and not any(key.kid == kid for key in known):
            return CredentialsError(
                RefusalReason.UNKNOWN_KEY, "the token names a key that this node does not know"
            )
        return _refusal(jwt.InvalidAlgorithmError())

    def _said(self, token: bytes, keys: Sequence[VerifyingKey]) -> Verified:
        for key in keys:
            try:
                return self._verified(self._decoded(token, key))
            except jwt.InvalidSignatureError:
                continue
            except RAISED_FOR_BAD as error:
                raise _refusal(error) from None
        raise _refusal(jwt.InvalidSignatureError())

    def _decoded(self, token: bytes, key: VerifyingKey) -> dict[str, Any]:
        rules = self._rules
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=sorted(key.algorithms),
            issuer=rules.issuer or None,
            audience=rules.audience or None,
            leeway=rules.leeway_s,
            options={"verify_aud": bool(rules.audience), "verify_iss": bool(rules.issuer)},
        )
        return claims

    def _verified(self, claims: dict[str, Any]) -> Verified:
        role = claims.get(self._rules.role_claim)
        if not isinstance(role, str) or not is_role(role):
            raise CredentialsError(
                RefusalReason.ROLE,
                f"the token has no role in its claim {self._rules.role_claim}, which is "
                "tokenAuthClaim",
            )
        ends = claims.get("exp")
        return Verified(role, None if ends is None else float(ends) + self._rules.leeway_s)


def token_provider(settings: AuthenticationFields) -> TokenProvider:
    """Returns the provider that the settings ask for. Raises StartError."""
    sources: list[KeySource] = []
    period_s = settings.authentication_files_check_seconds
    if settings.token_secret_key:
        file = path_of(settings.token_secret_key)
        sources.append(KeyFile(file, partial(secret_key, file), period_s))
    if settings.token_public_key:
        file = path_of(settings.token_public_key)
        sources.append(KeyFile(file, partial(public_key, file), period_s))
    if is_path(settings.token_key_set):
        of_set = path_of(settings.token_key_set)
        sources.append(
            KeyFile(
                of_set,
                lambda: keys_of_set(read_file(of_set, "tokenKeySet"), str(of_set), secrets=True),
                period_s,
            )
        )
    elif settings.token_key_set:
        from anabranch.broker.security.key_set_url import KeySetUrl

        sources.append(KeySetUrl(settings.token_key_set))
    rules = TokenRules(
        settings.token_auth_claim,
        settings.token_issuer,
        settings.token_audience,
        settings.token_allowed_clock_skew_seconds,
    )
    return TokenProvider(sources, rules)


def _header(token: bytes) -> tuple[str, str]:
    """The algorithm and the `kid` that a token names. Raises CredentialsError."""
    with contextlib.suppress(*RAISED_FOR_BAD):
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if isinstance(algorithm, str) and isinstance(kid, str):
            return algorithm, kid
    raise _malformed()


def _refusal(error: Exception) -> CredentialsError:
    for kind, reason, why in _WHY:
        if isinstance(error, kind):
            return CredentialsError(reason, why)
    return _malformed()


def _malformed() -> CredentialsError:
    return CredentialsError(RefusalReason.MALFORMED, "this is no token that can be read")
