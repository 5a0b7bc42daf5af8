"""`anabranch token`: keys, the tokens that they sign, and tokens' content."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from anabranch.cli.shared.flags import FILE
from anabranch.cli.shared.output import write_json
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import Quantity
from anabranch.core.security.principal import check_role

_SECRET_BYTES: Final = 64
_TOKEN_BYTES_MAX: Final = 16_384
_TIMES: Final = ("exp", "nbf", "iat")
_OUT: Final = click.Path(dir_okay=False, path_type=Path)


@click.group(epilog="Example: anabranch token create --secret secret.key --role ada --expires 30d")
def token() -> None:
    """Tokens, which clients show as credentials; the keys stay in files."""


@token.command(epilog="Example: anabranch token keys --private private.pem --public public.pem")
@click.option("--secret", type=_OUT, help="File for a shared secret (tokenSecretKey).")
@click.option("--private", type=_OUT, help="File for a private key, which makes tokens.")
@click.option("--public", type=_OUT, help="File for its public key (tokenPublicKey).")
@click.option(
    "--key-set",
    type=_OUT,
    help="File of a set of public keys (tokenKeySet) that it is added to, or made with.",
)
@click.option("--kid", help="The key's name in that set; the date and time if left.")
@click.option(
    "--algorithm",
    type=click.Choice(("ES256", "RS256", "EdDSA")),
    default="ES256",
    show_default=True,
    help="Algorithm that the private key signs by.",
)
def keys(
    secret: Path | None,
    private: Path | None,
    public: Path | None,
    key_set: Path | None,
    kid: str | None,
    algorithm: str,
) -> None:
    """Make a shared secret, or a private key and its public one.

    Files of secrets and private keys can be read by their owner alone, and none is written over.
    """
    if secret is not None and not (private or public or key_set):
        _write_new(secret, secrets.token_bytes(_SECRET_BYTES))
        click.echo(f"{secret} is a shared secret: give it to nodes, as tokenSecretKey, and nobody")
        return
    if secret is not None or private is None or not (public or key_set):
        raise click.UsageError("give --secret, or --private with --public, --key-set or both")
    named = kid or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    _make_pair(private, public, key_set, named, algorithm)


def _make_pair(
    private: Path, public: Path | None, key_set: Path | None, kid: str, algorithm: str
) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )
    from jwt import algorithms

    key: Any
    told: Any
    if algorithm == "ES256":
        key, told = ec.generate_private_key(ec.SECP256R1()), algorithms.ECAlgorithm
    elif algorithm == "RS256":
        key, told = rsa.generate_private_key(65_537, 3_072), algorithms.RSAAlgorithm
    else:
        key, told = ed25519.Ed25519PrivateKey.generate(), algorithms.OKPAlgorithm
    described = told.to_jwk(key.public_key(), as_dict=True)
    grown = _grown(key_set, {**described, "kid": kid, "alg": algorithm, "use": "sig"})
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_new(private, pem)
    click.echo(f"{private} is the private key, for `anabranch token create`: nodes need it not")
    if public is not None:
        _write_new(public, _public_pem(key, Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
        click.echo(f"{public} is its public key, for nodes, as tokenPublicKey")
    if key_set is not None:
        _write_over(key_set, grown)
        click.echo(f"{key_set} has it as {kid}, for nodes, as tokenKeySet")


def _public_pem(key: Any, encoding: Any, form: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(encoding, form)
    return pem


def _grown(file: Path | None, key: dict[str, Any]) -> bytes:
    """The set with one more key. Raises InvalidInputError where that would hide another."""
    held: list[Any] = []
    if file is not None and file.exists():
        try:
            held = list(json.loads(file.read_text("utf-8"))["keys"])
        except (ValueError, KeyError, TypeError):
            raise InvalidInputError(f"{file} is no set of keys (JWKS): correct it") from None
    if any(isinstance(each, dict) and each.get("kid") == key["kid"] for each in held):
        raise InvalidInputError(f"{file} has a key {key['kid']} already: give another --kid")
    return json.dumps({"keys": [*held, key]}, indent=2).encode() + b"\n"


def _write_new(file: Path, content: bytes, mode: int = 0o600) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise InvalidInputError(f"{file} is there: name another, nothing is written over") from None
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _write_over(file: Path, content: bytes) -> None:
    """Puts a set in the place of another one, readable by the user alone: it may hold secrets."""
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    if not file.exists():
        _write_new(beside, content, 0o644)
    else:
        _write_new(beside, content)
        beside.chmod(stat.S_IMODE(file.stat().st_mode))
    beside.replace(file)


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
@click.option(
    "--claim", default="sub", show_default=True, help="The claim that is the role (tokenAuthClaim)."
)
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


@token.command(epilog="Example: anabranch token inspect < ada.token")
@click.option("--file", type=FILE, help="File of the token; standard input if left.")
def inspect(file: Path | None) -> None:
    """Print a token's content, as JSON. Nothing of it is verified: a node does that.

    It is read from a file or standard input, because others can see a command line.
    """
    import jwt

    stream = file.open("rb") if file is not None else sys.stdin.buffer
    with stream:
        shown = stream.read(_TOKEN_BYTES_MAX + 1).strip()
    try:
        header = jwt.get_unverified_header(shown)
        claims = jwt.decode(shown, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise InvalidInputError("this is no token that can be read") from None
    dates = {
        name: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(claims[name]))
        for name in _TIMES
        if isinstance(claims.get(name), int) and 0 <= claims[name] < 1 << 40
    }
    write_json({"header": header, "claims": claims, "times": dates})
