"""`anabranch token`: keys, and the tokens that they sign."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

import click

from anabranch.cli.shared.flags import FILE
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import Quantity
from anabranch.core.security.principal import check_role

_SECRET_BYTES: Final = 64
_OUT: Final = click.Path(dir_okay=False, path_type=Path)


@click.group(epilog="Example: anabranch token create --secret secret.key --role ada --expires 30d")
def token() -> None:
    """Tokens, which clients show as credentials; the keys stay in files."""


@token.command(epilog="Example: anabranch token keys --private private.pem --public public.pem")
@click.option("--secret", type=_OUT, help="File for a shared secret (tokenSecretKey).")
@click.option("--private", type=_OUT, help="File for a private key, which makes tokens.")
@click.option("--public", type=_OUT, help="File for its public key (tokenPublicKey).")
def keys(secret: Path | None, private: Path | None, public: Path | None) -> None:
    """Make a shared secret, or a private key (ES256) and its public one.

    Files of secrets and private keys can be read by their owner alone, and none is written over.
    """
    if secret is not None and not (private or public):
        _write_new(secret, secrets.token_bytes(_SECRET_BYTES))
        click.echo(f"{secret} is a shared secret: give it to nodes, as tokenSecretKey, and nobody")
        return
    if secret is not None or private is None or public is None:
        raise click.UsageError("give --secret, or --private with --public")
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    told = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write_new(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    click.echo(f"{private} is the private key, for `anabranch token create`: nodes need it not")
    _write_new(public, told, 0o644)
    click.echo(f"{public} is its public key, for nodes, as tokenPublicKey")


def _write_new(file: Path, content: bytes, mode: int = 0o600) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise InvalidInputError(f"{file} is there: name another, nothing is written over") from None
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


@token.command(
    epilog="Example: anabranch token create --secret secret.key --role ada --expires 30d"
)
@click.option("--role", required=True, help="The role of the client that shows it.")
@click.option("--secret", type=FILE, help="File of the shared secret that signs it.")
@click.option("--private", type=FILE, help="File of the private key that signs it.")
@click.option("--algorithm", help="The key's algorithm, if it has several; RS256 for RSA if left.")
@click.option("--kid", help="The key's name in the nodes' tokenKeySet.")
@click.option("--expires", metavar="DURATION", help="Time from now until it is over: 12h, 30d ...")
@click.option("--issuer", help="Its `iss` (tokenIssuer).")
@click.option("--audience", help="Its `aud` (tokenAudience).")
@click.option("--claim", default="sub", help="The claim that is the role (tokenAuthClaim).")
def create(
    role: str,
    secret: Path | None,
    private: Path | None,
    algorithm: str | None,
    kid: str | None,
    expires: str | None,
    issuer: str | None,
    audience: str | None,
    claim: str,
) -> None:
    """Print a token. Without --expires it never ends, until its key is taken away."""
    import jwt

    check_role(role)
    if (secret is None) == (private is None):
        raise click.UsageError("give either --secret or --private")
    key, own = _signing(secret, private)
    now = int(time.time())
    claims: dict[str, Any] = {claim: role, "iat": now}
    claims |= {"exp": now + round(Quantity.SECONDS.read(expires))} if expires else {}
    claims |= {name: said for name, said in (("iss", issuer), ("aud", audience)) if said}
    try:
        made = jwt.encode(claims, key, algorithm or own, {"kid": kid} if kid else None)
    except (jwt.PyJWTError, NotImplementedError, TypeError, ValueError):
        raise InvalidInputError(
            f"the key cannot sign by {algorithm or own}: give --algorithm as the key's own"
        ) from None
    click.echo(made)


def _signing(secret: Path | None, private: Path | None) -> tuple[Any, str]:
    """The key, and the algorithm that it signs by if none is named."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from anabranch.broker.security.key_sets import secret_key

    if secret is not None:
        (found,) = secret_key(secret)
        return found.key, "HS256"
    if private is None:
        raise click.UsageError("give either --secret or --private")
    try:
        key = load_pem_private_key(private.read_bytes(), None)
    except (ValueError, TypeError):
        raise InvalidInputError(f"{private} is no private key in PEM without a password") from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        sizes = {256: "ES256", 384: "ES384", 521: "ES512"}
        return key, sizes.get(key.curve.key_size, "ES256")
    if isinstance(key, rsa.RSAPrivateKey):
        return key, "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key, "EdDSA"
    raise InvalidInputError(f"{private} is no key of RSA, of an elliptic curve or of Ed25519")
