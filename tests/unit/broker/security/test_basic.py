"""Users of a file and their passwords, of which hashes alone are known."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest

from anabranch.broker.errors import StartError
from anabranch.broker.security.basic import BasicProvider, users_of
from anabranch.broker.security.credentials import Credentials, CredentialsError
from support.memory_cluster import until
from support.secured import users_file


async def test_an_unknown_user_takes_as_long_as_those_of_the_file_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[bytes] = []
    file = tmp_path / "users"

    def put(cost: int) -> None:
        hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(cost)).decode()
        file.write_text(f"ada:{hashed}\n")

    def compared(password: bytes, hashed: bytes) -> bool:
        costs.append(hashed[4:6])
        return bcrypt.hashpw(password, hashed) == hashed

    put(4)
    by = BasicProvider(file, 0.01)
    await by.start()
    monkeypatch.setattr(bcrypt, "checkpw", compared)

    async def guessed_at(cost: int) -> None:
        before = by.generation
        put(cost)
        await until(lambda: by.generation > before)
        for user in (b"ada", b"eve"):
            with pytest.raises(CredentialsError):
                await by.verify(Credentials("basic", user + b":guess"))

    await guessed_at(4)
    await guessed_at(5)
    await by.stop()
    assert costs == [b"04", b"04", b"05", b"05"]


def test_files_of_users_that_cannot_be_used_are_named_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "users"
    for content, said in (
        ("ada:$apr1$x$y", "line 1 .*htpasswd -B"),
        ("ada:secret", "no bcrypt hash"),
        ("ada:$2b$31$" + "a" * 53, "cost of 4 to 14"),
        ("ada:$2b$03$" + "a" * 53, "cost of 4 to 14"),
        (":$2b$04$" + "a" * 53, "no user"),
        (f"ada:$2b$04${'a' * 53}\nada:$2y$04${'a' * 53}", "line 2"),
    ):
        file.write_text(content)
        with pytest.raises(StartError, match=said):
            users_of(file)
    assert users_of(Path(users_file(tmp_path, ada="secret"))).keys() == {"ada"}
