"""Keys that verify tokens: a secret, a public key, or a set of keys by `kid`, from a file.

A key is bound to the algorithms that are its own. So no token can choose to have a public key taken
for a secret. Files that are read again may change while the node runs: `generation` says that they
did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from anabranch.broker.errors import StartError
from anabranch.broker.security.files import ReadAgain, read_file

_SECRET_BYTES_MIN: Final = 32
_RSA_BITS_MIN: Final = 2_048
_KEYS_MAX: Final = 100  # of a set
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SET: Final = "tokenKeySet"

# A stranger's key or token can make the library raise these; all mean that it is bad.
RAISED_FOR_BAD: Final = (
    *(jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError),
    *(OverflowError, RecursionError, NotImplementedError),
)


class VerifyingKey(msgspec.Struct, frozen=True):
    """A key, and the algorithms that it may verify by. `kid`: "" for one that is not in a set."""

    key: Any
    algorithms: frozenset[str]
    kid: str = ""


class KeySource(Protocol):
    """A source of keys."""

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


def secret_key(file: Path) -> Sequence[VerifyingKey]:
    """Returns the secret in a file, as it is. Raises StartError, also for a key of another kind.

    A public key must not be taken for a secret: its readers could make tokens by it.
    """
    secret = read_file(file, "tokenSecretKey")
    if b"-----BEGIN" in secret or _is_public_key(secret):
        raise StartError(
            f"{file}, which is tokenSecretKey, has a key in PEM or DER, and no shared secret: a "
            "public key is given as tokenPublicKey"
        )
    if len(secret) < _SECRET_BYTES_MIN:
        raise StartError(
            f"{file}, which is tokenSecretKey, has {len(secret)} bytes: a secret that cannot be "
            f"guessed has {_SECRET_BYTES_MIN} at least; `anabranch token keys` makes one"
        )
    return (VerifyingKey(secret, _of_secret(secret)),)


def public_key(file: Path) -> Sequence[VerifyingKey]:
    """The public key in a file, for all of its algorithms. Raises StartError."""
    content = read_file(file, "tokenPublicKey")
    try:
        key = load_pem_public_key(content) if b"-----" in content else load_der_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{file}, which is tokenPublicKey, is no public key in PEM or DER: correct the file"
        ) from None
    return (VerifyingKey(key, _of_public(key, f"{file}, which is tokenPublicKey,")),)


def _is_public_key(der: bytes) -> bool:
    try:
        load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True


def keys_of_set(content: bytes, where: str, *, secrets: bool) -> Sequence[VerifyingKey]:
    """Returns the keys of a JWKS that can verify tokens. Raises StartError if there are none.

    `secrets`: True if shared secrets count; a published set must hold none.
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
    except (StartError, UnsupportedAlgorithm, *RAISED_FOR_BAD):
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
