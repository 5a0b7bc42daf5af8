"""`anabranch token`: what it makes is what nodes verify, and what it shows."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from anabranch.broker.security.credentials import Credentials, CredentialsError
from anabranch.broker.security.tokens import token_provider
from anabranch.broker.settings import load_settings
from anabranch.cli.main import cli
from anabranch.core.errors import InvalidInputError


def run(*words: str, shown: str = "") -> str:
    found = CliRunner().invoke(cli, ["token", *words], input=shown)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.stdout


def verified(shown: str, **settings: object) -> tuple[str, float | None]:
    by = token_provider(load_settings(None, {}, settings))
    found = asyncio.run(by.verify(Credentials("token", shown.strip().encode())))
    return found.role, found.ends_at


def test_a_secret_signs_what_nodes_with_it_verify(tmp_path: Path) -> None:
    secret = tmp_path / "secret.key"
    run("keys", "--secret", str(secret))
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(secret.read_bytes()) == 64
    made = run("create", "--secret", str(secret), "--role", "ada", "--expires", "1h")
    role, ends = verified(made, tokenSecretKey=str(secret))
    assert role == "ada"
    assert ends is not None
    forever = run("create", "--secret", str(secret), "--role", "ada", "--claim", "who")
    assert verified(forever, tokenSecretKey=str(secret), tokenAuthClaim="who") == ("ada", None)
    with pytest.raises(InvalidInputError, match="nothing is written over"):
        run("keys", "--secret", str(secret))


def _openssl(file: Path, key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> str:
    """A key that another tool has made."""
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(file)


def test_a_private_key_signs_what_its_public_one_verifies(tmp_path: Path) -> None:
    private, public = (str(tmp_path / name) for name in ("a.key", "a.pub"))
    run("keys", "--private", private, "--public", public)
    assert stat.S_IMODE(Path(private).stat().st_mode) == 0o600
    claims = ("--issuer", "river", "--audience", "nodes")
    token = run("create", "--private", private, "--role", "ada", *claims)
    wanted = {"tokenIssuer": "river", "tokenAudience": "nodes"}
    assert verified(token, tokenPublicKey=public, **wanted)[0] == "ada"
    with pytest.raises(CredentialsError):
        verified(token, tokenPublicKey=public, tokenIssuer="sea")


def test_a_key_of_another_kind_signs_as_its_key_set_says(tmp_path: Path) -> None:
    rivest = rsa.generate_private_key(65_537, 2_048)
    edwards = ed25519.Ed25519PrivateKey.generate()
    told = [
        {**RSAAlgorithm.to_jwk(rivest.public_key(), as_dict=True), "kid": "one", "alg": "RS256"},
        {**OKPAlgorithm.to_jwk(edwards.public_key(), as_dict=True), "kid": "two", "alg": "EdDSA"},
    ]
    key_set = tmp_path / "set.json"
    key_set.write_text(json.dumps({"keys": told}))
    files = {"one": _openssl(tmp_path / "a", rivest), "two": _openssl(tmp_path / "b", edwards)}
    for kid, private in files.items():
        token = run("create", "--private", private, "--role", "ada", "--kid", kid)
        assert verified(token, tokenKeySet=str(key_set))[0] == "ada"


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    secret = str(tmp_path / "secret.key")
    run("keys", "--secret", secret)
    for words, said in (
        (("create", "--secret", secret, "--role", " ada"), "role"),
        (("create", "--secret", secret, "--role", "ada", "--expires", "soon"), "duration"),
        (("create", "--secret", secret, "--role", "ada", "--algorithm", "RS256"), "cannot sign"),
        (("create", "--secret", secret, "--role", "ada", "--algorithm", "none"), "cannot sign"),
        (("create", "--private", secret, "--role", "ada"), "no private key"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            run(*words)
    for line in ("keys", "create --role ada", "keys --private x"):
        assert CliRunner().invoke(cli, ["token", *line.split()]).exit_code == 2
