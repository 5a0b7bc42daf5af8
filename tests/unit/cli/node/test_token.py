"""`anabranch token`: what it makes is what nodes verify, and what it shows."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.broker.security.credentials import Credentials, CredentialsError
from anabranch.broker.security.tokens import token_provider
from anabranch.broker.settings import load_settings
from anabranch.cli.main import cli
from anabranch.core.errors import InvalidInputError
from support.tokens import SECRET, jwk


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


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
def test_a_private_key_signs_what_its_public_one_verifies(tmp_path: Path, algorithm: str) -> None:
    private, public, key_set = (str(tmp_path / name) for name in ("a.key", "a.pub", "set.json"))
    made = ("--private", private, "--public", public, "--key-set", key_set, "--kid", "one")
    run("keys", *made, "--algorithm", algorithm)
    assert stat.S_IMODE(Path(private).stat().st_mode) == 0o600
    claims = ("--issuer", "river", "--audience", "nodes")
    token = run("create", "--private", private, "--role", "ada", "--kid", "one", *claims)
    wanted = {"tokenIssuer": "river", "tokenAudience": "nodes"}
    for keys in ({"tokenPublicKey": public}, {"tokenKeySet": key_set}):
        assert verified(token, **keys, **wanted)[0] == "ada"
    with pytest.raises(CredentialsError):
        verified(token, tokenPublicKey=public, tokenIssuer="sea")


def test_a_set_grows_by_a_key_and_keeps_those_it_has(tmp_path: Path) -> None:
    key_set = tmp_path / "set.json"
    tokens = {}
    for kid in ("one", "two"):
        private = str(tmp_path / f"{kid}.key")
        run("keys", "--private", private, "--key-set", str(key_set), "--kid", kid)
        tokens[kid] = run("create", "--private", private, "--role", kid, "--kid", kid)
    for kid, token in tokens.items():
        assert verified(token, tokenKeySet=str(key_set))[0] == kid
    before = key_set.read_bytes()
    other = ("--private", str(tmp_path / "three.key"), "--key-set", str(key_set), "--kid", "two")
    with pytest.raises(InvalidInputError, match="has a key two already"):
        run("keys", *other)
    assert key_set.read_bytes() == before
    assert not (tmp_path / "three.key").exists()
    assert "d" not in {name for key in json.loads(before)["keys"] for name in key}


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_set_that_grows_is_nobody_else_s_to_read(mode: int, tmp_path: Path) -> None:
    """It may hold shared secrets."""
    file, private = tmp_path / "set.json", str(tmp_path / "one.key")
    file.write_text(json.dumps({"keys": [jwk(SECRET, "shared")]}))
    file.chmod(mode)
    run("keys", "--private", private, "--key-set", str(file), "--kid", "one")
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert {each["kid"] for each in json.loads(file.read_bytes())["keys"]} == {"shared", "one"}


def test_what_a_token_says_is_shown_and_not_verified(tmp_path: Path) -> None:
    secret = str(tmp_path / "secret.key")
    run("keys", "--secret", secret)
    made = run("create", "--secret", secret, "--role", "ada", "--expires", "1d", "--kid", "one")
    told = json.loads(run("inspect", shown=made))
    assert told["header"] == {"alg": "HS256", "kid": "one", "typ": "JWT"}
    assert told["claims"]["sub"] == "ada"
    assert told["times"].keys() == {"iat", "exp"}
    for shown in ("", "no token", "a" * 20_000):
        with pytest.raises(InvalidInputError, match="no token that can be read"):
            run("inspect", shown=shown)


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
