"""What a client shows, and its TLS: where they come from, and that no secret is ever told."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from anabranch.access import CredentialsError, Tls, TlsFiles, Token, tls
from anabranch.core.errors import InvalidInputError
from support.authority import Authority
from support.tokens import token


def shown(credentials: Token) -> bytes:
    assert credentials.show_waiting() == asyncio.run(credentials.show())
    return credentials.show_waiting()


def test_a_token_comes_from_a_text_a_file_or_a_function(tmp_path: Path) -> None:
    file = tmp_path / "token"
    ada, eve = token("ada"), token("eve")  # made once: each says in which second it was
    file.write_text(ada + "\n")
    assert shown(Token(ada)) == shown(Token(file)) == shown(Token(lambda: ada)) == ada.encode()
    file.write_text(eve)
    assert shown(Token(file)) == eve.encode()
    assert not Token("x").is_renewable
    assert Token(file).is_renewable
    assert Token("x").header(b"x") == "Bearer x"
    assert [Token(file).is_asked_for, Token(lambda: "x").is_asked_for] == [False, True]


def test_a_coroutine_function_makes_one_for_who_can_await_it() -> None:
    async def fetched() -> str:
        await asyncio.sleep(0)
        return "abc"

    assert asyncio.run(Token(fetched).show()) == b"abc"
    assert asyncio.run(Token(lambda: fetched()).show()) == b"abc"
    with pytest.raises(CredentialsError, match="give a plain one here"):
        Token(fetched).show_waiting()


@pytest.mark.parametrize("wrong", ["", "  ", "Bearer abc", "ä", "x" * 20_000])
def test_what_is_no_token_is_refused_without_being_told(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(wrong)
    with pytest.raises(InvalidInputError, match="token") as refused:
        Token(wrong)
    for source in (file, lambda: wrong):
        with pytest.raises(CredentialsError, match="token") as failed:
            shown(Token(source))
        assert not wrong.strip() or wrong.strip() not in str(failed.value) + str(refused.value)


@pytest.mark.parametrize("source", [None, 7, b"bytes"])
def test_what_is_no_source_is_refused(source: object) -> None:
    with pytest.raises(InvalidInputError, match="is a str, the Path of a file, or a function"):
        Token(source)  # type: ignore[arg-type]


def test_why_there_is_nothing_to_show_is_told(tmp_path: Path) -> None:
    def fails() -> str:
        raise ValueError("topsecret")

    with pytest.raises(CredentialsError, match="cannot be read: No such file") as missing:
        shown(Token(tmp_path / "nothing"))
    assert str(tmp_path / "nothing") in str(missing.value)
    with pytest.raises(CredentialsError, match="failed with ValueError") as failed:
        shown(Token(fails))
    assert "topsecret" not in str(failed.value)
    with pytest.raises(CredentialsError, match="returned a NoneType"):
        shown(Token(lambda: None))  # type: ignore[arg-type,return-value]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsError, match="is no text"):
        shown(Token(tmp_path / "binary"))


def test_no_secret_is_in_a_repr(tmp_path: Path) -> None:
    secret = token("ada")
    told = [Token(secret), Token(lambda: secret), Token(tmp_path)]
    assert secret not in repr(told)
    assert secret not in "".join(each.renewal for each in told)
    assert str(tmp_path) in repr(told)


def test_tls_trusts_the_authorities_of_its_file_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = TlsFiles(Tls(ca_file=authority.file)).context()
    assert context.cert_store_stats()["x509_ca"] == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    anyhow = TlsFiles(Tls(ca_file=authority.file, dangerously_accept_any_host_name=True)).context()
    assert not anyhow.check_hostname
    assert anyhow.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("content", [b"", b"\n", b"nothing of the kind", b"\xff\xfe"])
def test_a_file_without_authorities_is_refused(content: bytes, tmp_path: Path) -> None:
    """To OpenSSL an empty one would mean those of the system."""
    file = tmp_path / "ca.pem"
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"ca\.pem"):
        TlsFiles(Tls(ca_file=file))


def test_files_that_could_not_be_used_once_are_read_again_though_they_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What hindered it may be no matter of what is in them, such as too many open files."""
    one = Authority(tmp_path / "one")
    file = tmp_path / "ca.pem"
    file.write_bytes(one.file.read_bytes())
    files = TlsFiles(Tls(ca_file=file))
    before = files.context()

    def fails(_: Tls) -> ssl.SSLContext:
        raise InvalidInputError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(tls, "client_context", fails)
        file.write_bytes(Authority(tmp_path / "other").file.read_bytes())
        assert files.context() is before
        assert files.context() is before
    assert caplog.text.count("not now") == 1
    after = files.context()
    assert after is not before
    assert files.context() is after


def test_certificates_that_are_of_no_use_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    with pytest.raises(InvalidInputError, match="goes with its key"):
        Tls(certificate_file=one.certificate)
    with pytest.raises(InvalidInputError, match="no certificate and its key"):
        TlsFiles(Tls(certificate_file=one.certificate, key_file=other.key))
    with pytest.raises(InvalidInputError, match="which has the key, cannot be read"):
        TlsFiles(Tls(certificate_file=one.certificate, key_file=tmp_path / "nothing"))
    leaf = Tls(ca_file=one.certificate)
    with pytest.raises(InvalidInputError, match="no certificates of authorities"):
        TlsFiles(leaf)


def test_files_that_change_make_another_tls_unless_they_are_of_no_use(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.file.read_bytes())
    files = TlsFiles(Tls(ca_file=file))
    first = files.context()
    assert files.context() is first
    file.write_bytes(b"half a certi")
    assert files.context() is first
    other.file.replace(file)
    second = files.context()
    assert second is not first
    assert second.get_ca_certs() != first.get_ca_certs()
    file.unlink()
    assert files.context() is second
