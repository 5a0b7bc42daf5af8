"""Keys and tokens of a test's own, made by the library that verifies them and by hand."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET = bytes(range(64))
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def secret_file(folder: Path, secret: bytes = SECRET) -> str:
    file = folder / "secret.key"
    file.write_bytes(secret)
    return str(file)


def public_file(folder: Path, key: Any = RSA_KEY, *, pem: bool = True) -> str:
    file = folder / "public.key"
    encoding = Encoding.PEM if pem else Encoding.DER
    file.write_bytes(key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo))
    return str(file)


def public_pem() -> bytes:
    pem: bytes = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def jwk(key: Any, kid: str, **more: object) -> dict[str, object]:
    """The public part of a key, or a secret, as one of a set."""
    if isinstance(key, bytes):
        told = {"kty": "oct", "k": base64.urlsafe_b64encode(key).rstrip(b"=").decode()}
    else:
        kinds: dict[str, Any] = {
            "RSAPrivateKey": jwt.algorithms.RSAAlgorithm,
            "EllipticCurvePrivateKey": jwt.algorithms.ECAlgorithm,
            "ECPrivateKey": jwt.algorithms.ECAlgorithm,
            "Ed25519PrivateKey": jwt.algorithms.OKPAlgorithm,
        }
        told = kinds[type(key).__name__].to_jwk(key.public_key(), as_dict=True)
    return {**told, "kid": kid, **more}


def key_set(*keys: dict[str, object]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(
    sub: object = "ada",
    key: Any = SECRET,
    algorithm: str = "HS256",
    *,
    kid: str = "",
    seconds: float | None = 3_600,
    **claims: object,
) -> str:
    said: dict[str, object] = {"sub": sub, **claims}
    if seconds is not None:
        said["exp"] = int(time.time() + seconds)
    return jwt.encode(said, key, algorithm, {"kid": kid} if kid else None)


def by_hand(header: object, claims: object, signature: bytes = b"") -> str:
    """A token that no library would make."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
