"""TLS on a node's two ports: who is let in, and whom a change of certificates disturbs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tracemalloc
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from anabranch.broker.errors import StartError
from anabranch.broker.security.handshakes import UNDER_WAY_MAX, Handshakes
from anabranch.broker.security.tls import TlsFiles, server_context
from anabranch.broker.settings import SettingsError, load_settings
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.framing import encode_frame
from anabranch.wire.shared_reads import SCRATCH_BYTES
from support.authority import Authority, Issued, tls_settings
from support.tls_port import counted, tls_port
from support.waiting import WAIT_S, until
from support.wire import HOST, on_both_loops, on_uvloop

pytestmark = on_both_loops

_REQUEST_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server", server=True)


class TlsByHand:
    """A client whose bytes a test sends itself, and which makes no large blocks of memory."""

    def __init__(
        self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=HOST)
        self._reader = reader
        self._writer = writer

    async def exchange(self, question: bytes, end: bytes) -> bytes:
        """What is answered up to this end; the first question goes with the hand-shake's last."""
        said, asked = b"", False
        async with asyncio.timeout(WAIT_S):
            while end not in said:
                try:
                    self._tls.do_handshake()
                    if not asked:
                        asked = bool(self._tls.write(question))
                    self._writer.write(self._outgoing.read())
                    said += self._tls.read(4_096)
                except ssl.SSLWantReadError:
                    self._writer.write(self._outgoing.read())
                    self._incoming.write(await self._reader.read(4_096))
        return said


async def test_what_comes_with_the_hand_shake_is_kept(authority: Authority, server: Issued) -> None:
    """A client of TLS 1.3 may send its first command with the last of its hand-shake."""
    hello = commands.envelope(pb.CommandConnect(client_version="raw"))

    async with tls_port(server) as port:
        reader, writer = await asyncio.open_connection(HOST, port.binary_port)
        client = TlsByHand(authority.client(), reader, writer)
        # The end is the version that CONNECTED names.
        await client.exchange(encode_frame(hello.SerializeToString()), b"test")
        writer.close()


async def test_what_is_larger_than_one_read_is_whole(authority: Authority, server: Issued) -> None:
    """And what of two connections comes in turns is each one's own, though they share a buffer."""
    sizes = (3, 2 * SCRATCH_BYTES + 17, 1, SCRATCH_BYTES)

    async with tls_port(server, app=_echo) as port:
        url = f"https://{HOST}:{port.web_port}/"
        async with httpx.AsyncClient(verify=authority.client(), timeout=WAIT_S) as client:
            sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
            answers = await asyncio.gather(*(client.post(url, content=each) for each in sent))
            assert [answer.content for answer in answers] == sent


@on_uvloop
async def test_a_request_by_tls_has_no_large_block_of_memory_made_for_it(
    authority: Authority, server: Issued
) -> None:
    question = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    last_chunk = b"\r\n0\r\n\r\n"

    async with tls_port(server) as port:
        reader, writer = await asyncio.open_connection(HOST, port.web_port)
        client = TlsByHand(authority.client(), reader, writer)
        for _ in range(3):
            answer = await client.exchange(question, last_chunk)
            assert answer.startswith(b"HTTP/1.1 200")
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await client.exchange(question, last_chunk)
            assert tracemalloc.get_traced_memory()[1] - before < _REQUEST_BYTES_MAX
        finally:
            tracemalloc.stop()
        writer.close()


async def _echo(_: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


async def test_only_trusted_certificates_of_clients_are_let_in_where_one_is_required(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    good = authority.issue("ada")
    bad = {
        "none": None,
        "of another authority": stranger.issue("eve"),
        "expired": authority.issue("old", ends=timedelta(hours=-1)),
        "for a server": authority.issue("shop", server=True),
    }

    async with tls_port(server, authority.file, required=True) as port:
        assert await port.get(authority.client(good)) == "https"
        for certificate in bad.values():
            with pytest.raises(httpx.TransportError):
                await port.get(authority.client(certificate))
        await until(lambda: counted(port.web) == {"handshake": len(bad)})


def test_older_versions_of_tls_are_refused(server: Issued) -> None:
    context = server_context(TlsFiles(*server))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED)
    assert context.num_tickets == 0


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(tmp_path: Path) -> None:
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    old, new = (each.issue("server", server=True) for each in (before, after))
    server = Issued(tmp_path / "server.pem", tmp_path / "server.key")

    def put(certificate: Path, key: Path) -> None:
        server.certificate.write_bytes(certificate.read_bytes())
        server.key.write_bytes(key.read_bytes())

    put(*old)
    async with tls_port(server) as port:
        client = await port.connect(before.client())
        await client.handshake()
        with capture_logs() as logged:
            await port.context.look()
            assert not logged
            put(new.certificate, old.key)  # half of it is there
            await port.context.look()
            await port.context.look()
            assert [line["event"] for line in logged] == ["security.file_not_taken"]
            assert "key values mismatch" in str(logged[0]["why"])
            assert await port.get(before.client()) == "https"
            put(*new)
            await port.context.look()
        assert logged[-1]["event"] == "security.file_taken"
        assert await port.get(after.client()) == "https"
        with pytest.raises(httpx.TransportError):
            await port.get(before.client())
        client.send(commands.envelope(pb.CommandPing()))
        await client.told()
        client.writer.close()


async def test_who_is_no_longer_trusted_is_let_in_no_more(tmp_path: Path) -> None:
    """Not by a session of before either, which TLS 1.2 would go on with."""
    ours, next_ = Authority(tmp_path / "ours"), Authority(tmp_path / "next")
    server = ours.issue("server", server=True)
    trusted = tmp_path / "trusted.pem"

    trusted.write_bytes(ours.file.read_bytes())
    async with tls_port(server, trusted, required=True) as port:
        context = ours.client(ours.issue("ada"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection(HOST, port.binary_port, ssl=context)
        session = writer.get_extra_info("ssl_object").session
        writer.close()
        trusted.write_bytes(next_.file.read_bytes())
        await port.context.look()
        assert await asyncio.to_thread(_resumed, context, port.binary_port, session) == ""


def _resumed(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> str:
    """What a client gets that comes back with a session of before; "" where it is refused."""
    with socket.create_connection((HOST, port), timeout=WAIT_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=HOST, session=session) as secured:
                secured.send(b"\0")
                return secured.version() or "?"
        except ssl.SSLError:
            return ""


async def test_hand_shakes_have_a_time_and_a_bound(authority: Authority, server: Issued) -> None:
    async with tls_port(server, seconds=0.05) as port:
        reader, writer = await asyncio.open_connection(HOST, port.binary_port)
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""
        assert counted(port.binary) == {"time": 1}
        writer.close()
    async with tls_port(server) as port:
        idle = [
            await asyncio.open_connection(HOST, port.binary_port) for _ in range(UNDER_WAY_MAX + 3)
        ]
        await until(lambda: port.binary.refused["connections"] == 3)
        assert await idle[0][0].read() == b""
        client = await port.connect(authority.client())
        await client.handshake()
        for _, writer in idle:
            writer.close()
        client.writer.close()


async def test_a_fault_at_one_connection_closes_the_port_to_no_other(
    authority: Authority, server: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Handshakes._begin

    def fails(*_: object) -> None:
        monkeypatch.setattr(Handshakes, "_begin", begin)
        raise ValueError("a fault")

    async with tls_port(server) as port:
        monkeypatch.setattr(Handshakes, "_begin", fails)
        _, writer = await asyncio.open_connection(HOST, port.binary_port)
        await until(lambda: Handshakes._begin is begin)
        client = await port.connect(authority.client())
        await client.handshake()
        client.writer.close()
        writer.close()


async def test_what_is_no_tls_is_refused_and_told(server: Issued) -> None:
    async with tls_port(server) as port:
        with capture_logs() as logged:
            for said in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\x16\x03\x01\xff\xff"):
                reader, writer = await asyncio.open_connection(HOST, port.web_port)
                writer.write(said)
                writer.write_eof()
                async with asyncio.timeout(WAIT_S):
                    await reader.read()
                writer.close()
            await until(lambda: sum(port.web.refused.values()) == 3)
        assert {line["event"] for line in logged} == {"tls.refused"}
        assert logged[0]["peer"].startswith(HOST)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("missing", "cannot be read: No such file"),
        ("text", "no certificate and its key in PEM"),
        ("other key", "key values mismatch"),
    ],
)
def test_files_of_no_use_are_named_with_the_remedy(tmp_path: Path, broken: str, said: str) -> None:
    authority = Authority(tmp_path)
    server, other = authority.issue("server", server=True), authority.issue("other", server=True)
    if broken == "missing":
        server.key.unlink()
    elif broken == "text":
        server.certificate.write_text("no certificate")
    else:
        server.key.write_bytes(other.key.read_bytes())
    with pytest.raises(StartError, match=said) as raised:
        server_context(TlsFiles(*server))
    assert "tlsKeyFilePath" in str(raised.value)


def test_a_file_without_an_authority_trusts_nobody(server: Issued, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    for content in ("", server.key.read_text()):
        trusted.write_text(content)
        with pytest.raises(StartError, match="no certificates"):
            server_context(TlsFiles(server.certificate, server.key, trusted))


def test_settings_that_miss_something_say_what(server: Issued) -> None:
    files = tls_settings(server)
    for given, said in (
        ({"webServicePortTls": 8443}, "without tlsCertificateFilePath and tlsKeyFilePath"),
        ({**files, "webServicePort": ""}, "neither webServicePort nor webServicePortTls"),
        ({**files, "brokerServicePort": ""}, "neither brokerServicePort nor"),
        ({"tlsRequireTrustedClientCertOnConnect": True}, "needs tlsTrustCertsFilePath"),
    ):
        with pytest.raises(SettingsError, match=said):
            load_settings(None, {}, given)
