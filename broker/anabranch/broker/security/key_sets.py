"""Keys that verify tokens: a secret, a public key, or a set of keys by `kid`, from a file or a URL.

A key is bound to the algorithms that are its own, so that no token can choose to have a public key
taken for a secret. Whatever is read again may change while the node runs: `generation` says that it
did.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.files import ReadAgain, read_file
from anabranch.wire import clock

_SECRET_BYTES_MIN: Final = 32
_RSA_BITS_MIN: Final = 2_048
_KEYS_MAX: Final = 100  # of a set
_BODY_BYTES_MAX: Final = 1 << 20
_FETCH_S_MAX: Final = 5.0
_AGAIN_S: Final = 10.0  # between two fetches for a `kid` that is not known
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SET: Final = "tokenKeySet"

_log = get_logger()


class VerifyingKey(msgspec.Struct, frozen=True):
    """A key, and the algorithms by which it may verify. `kid`: "" for one that is not in a set."""

    key: Any
    algorithms: frozenset[str]
    kid: str = ""


class KeySource(Protocol):
    """Where keys come from."""

    @property
    def generation(self) -> int:
        """Another one after its keys have changed."""
        ...

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        """Those that count now."""
        ...

    async def look_for(self, kid: str) -> None:
        """Looks once more for a key that is not among them, if it has not done so just before."""
        ...

    async def follow(self) -> None:
        """Keeps up with changes; for a task."""
        ...


class KeyFile:
    """Keys of a file."""

    def __init__(
        self, file: Path, load: Callable[[], Sequence[VerifyingKey]], period_s: float
    ) -> None:
        self._content = ReadAgain("token keys", (file,), load)
        self._period_s = period_s

    @property
    def generation(self) -> int:
        return self._content.generation

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        return self._content.current

    async def look_for(self, kid: str) -> None:
        """It is looked at often enough, and strangers need not have it read."""

    async def follow(self) -> None:
        await self._content.follow(self._period_s)


class KeySetUrl:
    """A set of keys that is fetched. While its server does not answer, those it had go on counting
    until their time is over, and afterwards there are none.
    """

    def __init__(
        self,
        url: str,
        trusted: Path | None,
        refresh_s: float,
        expiry_s: float,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._expiry_s = expiry_s
        self._now = now
        self._context = _trusting(trusted)
        self._body = b""
        self._keys: Sequence[VerifyingKey] = ()
        self._changes = 0
        self._good_until = now()
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    @property
    def generation(self) -> int:
        return 2 * self._changes + self._is_good

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        return self._keys if self._is_good else ()

    @property
    def _is_good(self) -> bool:
        return self._now() < self._good_until

    async def look_for(self, kid: str) -> None:
        async with self._fetching:
            if self._now() - self._tried_at >= _AGAIN_S:
                await self._fetch()

    async def follow(self) -> None:
        while True:
            async with self._fetching:
                await self._fetch()
            await asyncio.sleep(self._refresh_s)

    async def _fetch(self) -> None:
        self._tried_at = self._now()
        try:
            body = await self._got()
            keys = self._keys if body == self._body else keys_of_set(body, self._url, secrets=False)
        except (httpx.HTTPError, OSError, StartError, TimeoutError) as error:
            left = max(0.0, self._good_until - self._now())
            _log.warning(
                "security.key_set_not_fetched",
                url=self._url,
                why=str(error) or type(error).__name__,
                keys=len(self.keys),
                seconds_left=round(left),
                remedy="until then the keys that it had before go on",
            )
            return
        self._good_until = self._now() + self._expiry_s
        if body != self._body:
            self._body, self._keys = body, keys
            self._changes += 1
            _log.info("security.key_set_fetched", url=self._url, keys=len(keys))

    async def _got(self) -> bytes:
        body = bytearray()
        async with (
            asyncio.timeout(_FETCH_S_MAX),
            httpx.AsyncClient(
                verify=self._context, timeout=_FETCH_S_MAX, trust_env=False
            ) as client,
            client.stream("GET", self._url, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise StartError(f"it answers with status {answer.status_code}, not with keys")
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _BODY_BYTES_MAX:
                    raise StartError(f"it answers with more than {_BODY_BYTES_MAX} bytes")
        return bytes(body)


def secret_key(file: Path) -> Sequence[VerifyingKey]:
    """The secret in a file, as it is. Raises StartError."""
    secret = read_file(file, "tokenSecretKey")
    if len(secret) < _SECRET_BYTES_MIN:
        raise StartError(
            f"{file}, which is tokenSecretKey, has {len(secret)} bytes: a secret that cannot be "
            f"guessed has {_SECRET_BYTES_MIN} at least; `anabranch token keys` makes one"
        )
    return (VerifyingKey(secret, _of_secret(secret)),)


def public_key(file: Path, algorithm: str) -> Sequence[VerifyingKey]:
    """The public key in a file, for that algorithm or, without one, all of its own. Raises
    StartError.
    """
    content = read_file(file, "tokenPublicKey")
    try:
        key = load_pem_public_key(content) if b"-----" in content else load_der_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{file}, which is tokenPublicKey, is no public key in PEM or DER: correct the file"
        ) from None
    own = _of_public(key, f"{file}, which is tokenPublicKey,")
    if algorithm and algorithm not in own:
        raise StartError(
            f"tokenPublicAlg is {algorithm}, but the key in {file} is for "
            f"{', '.join(sorted(own))}: correct either"
        )
    return (VerifyingKey(key, frozenset((algorithm,)) if algorithm else own),)


def keys_of_set(content: bytes, where: str, *, secrets: bool) -> Sequence[VerifyingKey]:
    """The keys of a JWKS that can verify tokens. Raises StartError where there are none.

    `secrets`: whether shared secrets count, which nothing that is published may hold.
    """
    what = f"{where}, which is {_SET},"
    try:
        listed = json.loads(content)["keys"]
        described = [each for each in listed if isinstance(each, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StartError(f"{what} is no set of keys in JSON (JWKS): correct it") from None
    if len(described) > _KEYS_MAX:
        raise StartError(f"{what} has {len(described)} keys; {_KEYS_MAX} are the most")
    found = [key for each in described if (key := _of_set(each, what, secrets=secrets)) is not None]
    if not found:
        raise StartError(f"{what} has no key that can verify tokens: correct it")
    return tuple(found)


def _of_set(told: dict[str, Any], what: str, *, secrets: bool) -> VerifyingKey | None:
    """One of a set; None for one that verifies nothing here, as others may have uses of their own.

    An error of the library would repeat the key, so none is passed on.
    """
    kid, wanted = told.get("kid", ""), told.get("alg", "")
    if told.get("use", "sig") != "sig" or not isinstance(kid, str) or not isinstance(wanted, str):
        return None
    try:
        key = jwt.PyJWK(told).key
        if isinstance(key, bytes):
            if not secrets or len(key) < _SECRET_BYTES_MIN:
                return None
            own = _of_secret(key)
        else:
            key = key.public_key() if hasattr(key, "public_key") else key
            own = _of_public(key, what)
    except (jwt.PyJWTError, StartError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    algorithms = own & {wanted} if wanted else own
    return VerifyingKey(key, frozenset(algorithms), kid) if algorithms else None


def _of_secret(secret: bytes) -> frozenset[str]:
    """A secret shorter than the hash is no better than the shorter hash."""
    return frozenset(f"HS{bits}" for bits in (256, 384, 512) if len(secret) * 8 >= bits)


def _of_public(key: object, what: str) -> frozenset[str]:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _RSA_BITS_MIN:
            raise StartError(
                f"{what} is an RSA key of {key.key_size} bits: {_RSA_BITS_MIN} or more"
            )
        return frozenset(_RSA)
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return frozenset((_CURVES[key.curve.name],))
    if isinstance(key, ed25519.Ed25519PublicKey):
        return frozenset(("EdDSA",))
    raise StartError(f"{what} is no key of RSA, of the curves P-256, P-384, P-521, or of Ed25519")


def _trusting(trusted: Path | None) -> ssl.SSLContext:
    setting = "tokenKeySetTrustCertsFilePath"
    if trusted is None:
        return ssl.create_default_context()
    content = read_file(trusted, setting)
    try:
        return ssl.create_default_context(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise StartError(
            f"{trusted}, which is {setting}, has no certificates in PEM: correct the file"
        ) from None
