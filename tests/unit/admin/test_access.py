"""Administration that shows who asks, and looks whom it asks; and what the commands say of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from anabranch.admin import (
    Admin,
    AdminError,
    AsyncAdmin,
    AuthenticationError,
    Basic,
    CredentialsError,
    InvalidInputError,
    Tls,
    TlsError,
    Token,
    UnreachableError,
)
from anabranch.admin.access import Follower, identity_of
from anabranch.broker.cli.main import cli
from support.authority import Authority
from support.tls_port import tls_port
from support.wire import run


class Site:
    """A node that notes the header Authorization, and takes one of them."""

    def __init__(self, takes: str, sends_on: str = "") -> None:
        self.takes = takes
        self.sends_on = sends_on
        self.seen: list[str | None] = []
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shown = self.headers.get("Authorization")
                site.seen.append(shown)
                body = b'["acme"]' if shown == site.takes else b'{"reason": "not you"}'
                status = 200 if shown == site.takes else 401
                if site.sends_on:
                    status, body = 307, b""
                self.send_response(status)
                if site.sends_on:
                    self.send_header("Location", site.sends_on + self.path)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield self
        finally:
            server.shutdown()
            serving.join()
            server.server_close()


def asked(url: str, credentials: Token | Basic | None, count: int = 1) -> list[str]:
    """What either face is told in the end, each asked so often."""

    async def test() -> list[str]:
        async with AsyncAdmin(url, credentials=credentials) as admin:
            found = [await admin.tenants.get_tenants() for _ in range(count)]
            return found[-1]

    with Admin(url, credentials=credentials) as admin:
        found = [admin.tenants.get_tenants() for _ in range(count)]
    assert asyncio.run(test()) == found[-1]
    return found[-1]


def test_who_asks_is_shown_to_the_node_that_a_request_is_sent_on_to_as_well() -> None:
    with (
        Site("Bearer abc").running() as owner,
        Site("Bearer abc", sends_on=owner.url).running() as first,
    ):
        assert asked(first.url, Token("abc")) == ["acme"]
        assert owner.seen == first.seen == ["Bearer abc"] * 2


def test_a_user_is_shown_as_http_wants_it() -> None:
    with Site("Basic YWRhOnNlY3JldA==").running() as site:
        assert asked(site.url, Basic("ada", "secret")) == ["acme"]


def test_a_file_is_read_for_each_request_and_a_function_asked_when_refused(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    made: list[str] = []

    def fetched() -> str:
        made.append("old" if len(made) % 2 == 0 else "new")
        return made[-1]

    with Site("Bearer new").running() as site:
        with Admin(site.url, credentials=Token(file)) as admin:
            with pytest.raises(AuthenticationError, match=r"not you\. Put another token into"):
                admin.tenants.get_tenants()
            assert site.seen == ["Bearer one"]  # the same is not shown twice
            file.write_text("new")
            assert admin.tenants.get_tenants() == ["acme"]
        assert asked(site.url, Token(fetched), count=3) == ["acme"]
        assert made == ["old", "new"] * 2


def test_who_is_refused_is_told_what_to_do() -> None:
    with Site("nobody").running() as site:
        for shown, remedy in (
            (None, "Show who you are"),
            (Token("abc"), "Give another token"),
            (Token(lambda: "abc"), "Have the function"),
        ):
            with pytest.raises(AuthenticationError, match=remedy) as refused:
                asked(site.url, shown)
            assert refused.value.status == 401
            assert "abc" not in str(refused.value)


def test_nothing_is_asked_where_there_is_nothing_to_show(tmp_path: Path) -> None:
    async def fetched() -> str:
        return "abc"

    with Site("Bearer abc").running() as site:
        with pytest.raises(CredentialsError, match="cannot be read"):
            asked(site.url, Token(tmp_path / "nothing"))
        with pytest.raises(CredentialsError, match="give a plain one here"):
            asked(site.url, Token(fetched))
        assert not site.seen


def test_a_request_by_tls_is_not_sent_on_to_a_port_without() -> None:
    request = httpx.Request("GET", "https://one/")
    following = Follower(request, identity_of((), Token("abc")), b"abc")
    answer = httpx.Response(307, request=request)
    answer.next_request = httpx.Request("GET", "http://two/")
    for _ in following.requests():
        with pytest.raises(UnreachableError, match="two, which is without TLS"):
            following.take(answer)
        break


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path).file
    with pytest.raises(InvalidInputError, match="write https://"):
        Admin("http://a:1", tls=Tls(ca_file=authority))
    with pytest.raises(InvalidInputError, match="is a Token or Basic"):
        Admin(credentials="abc")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is a Tls"):
        Admin("https://a:1", tls=authority)  # type: ignore[arg-type]


def test_a_node_by_tls_has_to_be_who_it_should_be(tmp_path: Path) -> None:
    """The port here says `https` and nothing else, which is no node's answer."""
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    server = authority.issue("server", server=True)
    elsewhere = authority.issue("elsewhere", server=True, host="127.0.0.2")

    def look(url: str, tls: Tls | None) -> None:
        with Admin(url, tls=tls) as admin:
            admin.tenants.get_tenants()

    def ran(*words: str) -> str:
        said = CliRunner().invoke(cli, words)
        assert isinstance(said.exception, AdminError), said.output  # which has status 2
        return str(said.exception)

    async def test() -> None:
        async with tls_port(server) as port:
            url = f"https://127.0.0.1:{port.web_port}"
            with pytest.raises(UnreachableError, match="is it a node"):
                await asyncio.to_thread(look, url, Tls(ca_file=authority.file))
            for tls in (Tls(ca_file=other.file), None):
                with pytest.raises(TlsError, match="not trusted"):
                    await asyncio.to_thread(look, url, tls)
            plain = url.replace("https", "http")
            with pytest.raises(UnreachableError, match="https:// its webServicePortTls"):
                await asyncio.to_thread(look, plain, None)
            known = ("--tls-ca", str(other.file), "tenants", "list", "--url", url)
            assert "not trusted" in await asyncio.to_thread(ran, *known)
        async with tls_port(elsewhere) as port:
            url = f"https://127.0.0.1:{port.web_port}"
            with pytest.raises(TlsError, match=r"not for 127\.0\.0\.1"):
                await asyncio.to_thread(look, url, Tls(ca_file=authority.file))
            flags = ("--tls-ca", str(authority.file))
            words = ("tenants", "list", "--url", url)
            assert "not for 127.0.0.1" in await asyncio.to_thread(ran, *flags, *words)
            anyhow = Tls(ca_file=authority.file, dangerously_accept_any_host_name=True)
            with pytest.raises(UnreachableError, match="is it a node"):
                await asyncio.to_thread(look, url, anyhow)

    run(test)


def test_a_certificate_that_changes_is_shown_from_then_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, own = authority.issue("server", server=True), authority.issue("ada")
    stranger = Authority(tmp_path / "other").issue("eve")
    shown = authority.issue("shown")

    def put(issued: tuple[Path, Path]) -> None:
        shown.certificate.write_bytes(issued[0].read_bytes())
        shown.key.write_bytes(issued[1].read_bytes())

    tls = Tls(ca_file=authority.file, certificate_file=shown.certificate, key_file=shown.key)

    async def test() -> None:
        async with tls_port(server, authority.file, required=True) as port:
            url = f"https://127.0.0.1:{port.web_port}"
            put(stranger)
            async with AsyncAdmin(url, tls=tls) as admin:
                with pytest.raises(UnreachableError, match="certificate"):
                    await admin.tenants.get_tenants()
                put(own)
                with pytest.raises(UnreachableError, match="is it a node"):
                    await admin.tenants.get_tenants()

    run(test)


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
        assert status == 1
        assert said == "anabranch: 401: not you. Give another token\n"
        assert "goes with --password-file" in ran("--user", "ada")[1]
