"""Administration that shows who asks, and looks whom it asks; and what the commands say of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from anabranch import admin as sdk
from anabranch.admin.access import Follower, identity_of
from anabranch.cli.main import cli
from support.answering import Answer, node
from support.authority import Authority
from support.tls_port import tls_port
from support.wire import on_both_loops

pytestmark = on_both_loops


class Site:
    """A node that notes the header Authorization, and takes one of them."""

    def __init__(self, takes: str, sends_on: str = "") -> None:
        self.takes = takes
        self.sends_on = sends_on
        self.seen: list[str | None] = []
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        with node(self._answer, self.seen) as self.url:
            yield self

    def _answer(self, _verb: str, path: str) -> Answer:
        if self.sends_on:
            return 307, {"Location": self.sends_on + path}, None
        taken = self.seen[-1] == self.takes
        return (200, {}, ["acme"]) if taken else (401, {}, {"reason": "not you"})


def asked(url: str, credentials: sdk.Token | sdk.Basic | None, count: int = 1) -> list[str]:
    """What either face is told in the end, each asked so often."""

    async def test() -> list[str]:
        async with sdk.AsyncAdmin(url, credentials=credentials) as admin:
            return [await admin.tenants.get_tenants() for _ in range(count)][-1]

    with sdk.Admin(url, credentials=credentials) as admin:
        found = [admin.tenants.get_tenants() for _ in range(count)]
    assert asyncio.run(test()) == found[-1]
    return found[-1]


def test_who_asks_is_shown_to_the_node_that_a_request_is_sent_on_to_as_well() -> None:
    with (
        Site("Bearer abc").running() as owner,
        Site("Bearer abc", sends_on=owner.url).running() as first,
    ):
        assert asked(first.url, sdk.Token("abc")) == ["acme"]
        assert owner.seen == first.seen == ["Bearer abc"] * 2


def test_a_file_is_read_for_each_request_and_a_function_asked_when_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    made: list[str] = []

    def fetched() -> str:
        made.append("old" if len(made) % 2 == 0 else "new")
        return made[-1]

    with Site("Bearer new").running() as site:
        with sdk.Admin(site.url, credentials=sdk.Token(file)) as admin:
            with pytest.raises(sdk.AuthenticationError, match=r"not you\. Put another token into"):
                admin.tenants.get_tenants()
            assert site.seen == ["Bearer one"]  # the same is not shown twice
            file.write_text("new")
            assert admin.tenants.get_tenants() == ["acme"]
        assert asked(site.url, sdk.Token(fetched), count=3) == ["acme"]
        assert made == ["old", "new"] * 2


def test_who_is_refused_is_told_what_to_do() -> None:
    with Site("nobody").running() as site:
        for shown, remedy in (
            (None, "Show who you are"),
            (sdk.Token("abc"), "Give another token"),
            (sdk.Token(lambda: "abc"), "Have the function"),
        ):
            with pytest.raises(sdk.AuthenticationError, match=remedy) as refused:
                asked(site.url, shown)
            assert refused.value.status == 401
            assert "abc" not in str(refused.value)


def test_nothing_is_asked_where_there_is_nothing_to_show(tmp_path: Path) -> None:
    async def fetched() -> str:
        return "abc"

    with Site("Bearer abc").running() as site:
        with pytest.raises(sdk.CredentialsError, match="cannot be read"):
            asked(site.url, sdk.Token(tmp_path / "nothing"))
        with pytest.raises(sdk.CredentialsError, match="give a plain one here"):
            asked(site.url, sdk.Token(fetched))
        assert not site.seen


def test_a_request_by_tls_is_not_sent_on_to_a_port_without() -> None:
    request = httpx.Request("GET", "https://one/")
    following = Follower(request, identity_of((), sdk.Token("abc")), b"abc")
    answer = httpx.Response(307, request=request)
    answer.next_request = httpx.Request("GET", "http://two/")
    for _ in following.requests():
        with pytest.raises(sdk.UnreachableError, match="two, which is without TLS"):
            following.take(answer)
        break


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path).file
    with pytest.raises(sdk.InvalidInputError, match="write https://"):
        sdk.Admin("http://a:1", tls=sdk.Tls(ca_file=authority))
    with pytest.raises(sdk.InvalidInputError, match="is a Token or Basic"):
        sdk.Admin(credentials="abc")  # type: ignore[arg-type]
    with pytest.raises(sdk.InvalidInputError, match="is a Tls"):
        sdk.Admin("https://a:1", tls=authority)  # type: ignore[arg-type]


async def test_a_node_by_tls_has_to_be_who_it_should_be(tmp_path: Path) -> None:
    """The port here says `https` and nothing else, which is no node's answer."""
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    server = authority.issue("server", server=True)
    elsewhere = authority.issue("elsewhere", server=True, host="127.0.0.2")

    def look(url: str, tls: sdk.Tls | None) -> None:
        with sdk.Admin(url, tls=tls) as admin:
            admin.tenants.get_tenants()

    def ran(*words: str) -> str:
        said = CliRunner().invoke(cli, words)
        assert isinstance(said.exception, sdk.AdminError), said.output  # which has status 2
        return str(said.exception)

    async with tls_port(server) as port:
        url = f"https://127.0.0.1:{port.web_port}"
        with pytest.raises(sdk.UnreachableError, match="is it a node"):
            await asyncio.to_thread(look, url, sdk.Tls(ca_file=authority.file))
        for tls in (sdk.Tls(ca_file=other.file), None):
            with pytest.raises(sdk.TlsError, match="not trusted"):
                await asyncio.to_thread(look, url, tls)
        plain = url.replace("https", "http")
        with pytest.raises(sdk.UnreachableError, match="https:// its webServicePortTls"):
            await asyncio.to_thread(look, plain, None)
    async with tls_port(elsewhere) as port:
        url = f"https://127.0.0.1:{port.web_port}"
        with pytest.raises(sdk.TlsError, match=r"not for 127\.0\.0\.1"):
            await asyncio.to_thread(look, url, sdk.Tls(ca_file=authority.file))
        flags = ("--tls-ca", str(authority.file))
        words = ("tenants", "list", "--url", url)
        assert "not for 127.0.0.1" in await asyncio.to_thread(ran, *flags, *words)
        anyhow = sdk.Tls(ca_file=authority.file, dangerously_accept_any_host_name=True)
        with pytest.raises(sdk.UnreachableError, match="is it a node"):
            await asyncio.to_thread(look, url, anyhow)


async def test_a_certificate_that_changes_is_shown_from_then_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, own = authority.issue("server", server=True), authority.issue("ada")
    stranger = Authority(tmp_path / "other").issue("eve")
    shown = authority.issue("shown")

    def put(issued: tuple[Path, Path]) -> None:
        shown.certificate.write_bytes(issued[0].read_bytes())
        shown.key.write_bytes(issued[1].read_bytes())

    tls = sdk.Tls(ca_file=authority.file, certificate_file=shown.certificate, key_file=shown.key)

    async with tls_port(server, authority.file, required=True) as port:
        url = f"https://127.0.0.1:{port.web_port}"
        put(stranger)
        async with sdk.AsyncAdmin(url, tls=tls) as admin:
            with pytest.raises(sdk.UnreachableError, match="certificate"):
                await admin.tenants.get_tenants()
            put(own)
            with pytest.raises(sdk.UnreachableError, match="is it a node"):
                await admin.tenants.get_tenants()


def test_flags_go_before_the_environment_and_one_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    with Site("Bearer abc").running() as site:

        def ran(*words: str, **environment: str) -> tuple[int, str]:
            told = {"ANABRANCH_URL": site.url, **environment}
            said = CliRunner().invoke(cli, (*words, "tenants", "list"), env=told)
            return said.exit_code, said.output

        assert ran(ANABRANCH_TOKEN="abc") == (0, "acme\n")
        assert ran(ANABRANCH_TOKEN_FILE=str(file)) == (0, "acme\n")
        assert ran("--token-file", str(file), ANABRANCH_TOKEN="x") == (0, "acme\n")
        both = ran(ANABRANCH_TOKEN="abc", ANABRANCH_TOKEN_FILE=str(file))
        assert both[0] == 2
        assert "give one of --token-file" in both[1]
        status, said = ran(ANABRANCH_TOKEN="xyz")
        assert (status, said) == (1, "anabranch: 401: not you. Give another token\n")
        assert "goes with --password-file" in ran("--user", "ada")[1]
