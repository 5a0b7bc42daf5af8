"""Certificates, keys and tokens are replaced while secured clients produce and consume."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.access import Tls, TlsFiles, Token
from anabranch.client import Client
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.errors import AuthenticationError
from support.authority import Authority, Issued
from support.rotation import Clients, Follower, Rotating, clients_of, rotating, signed
from support.secured_proxy import PROXY, READER
from support.waiting import eventually, until
from support.wire import HOST

NOT_TAKEN = "security.file_not_taken"
INTERRUPTED = {"consumer.session_interrupted", "consumer.refused", "watch.lost", "watch.failing"}


@pytest.fixture
def running(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Rotating]:
    """A cluster of the test's own."""
    with caplog.at_level(logging.INFO, "anabranch"), rotating(kafka, topic_prefix, tmp_path) as it:
        asyncio.run(it.furnish())
        yield it
        for text in it.texts:
            assert "Traceback" not in text


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())


async def all_show(running: Rotating, issued: Issued) -> None:
    """Returns once a new connection to any port is shown this certificate."""
    for port in running.ports.values():

        async def does(port: int = port) -> bool:
            return await running.shown_by(port) == der(issued)

        await eventually(does)


def events(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {getattr(record, "event", "") for record in caplog.records}


async def let_in(running: Rotating, shown: str) -> list[ClientConnection]:
    """New connections, by the binary ports of nodes and proxy."""
    tls = TlsFiles(Tls(ca_file=running.around.authority.file))
    return [
        await connect(HOST, port, tls=tls, credentials=Token(shown))
        for port in running.binary.values()
    ]


async def left(connection: ClientConnection) -> None:
    connection.abort("it was let in")
    await connection.closed


async def is_refused(running: Rotating, shown: str) -> None:
    """Returns once none of the binary ports takes this token any more."""
    tls = TlsFiles(Tls(ca_file=running.around.authority.file))
    for port in running.binary.values():

        async def does(port: int = port) -> bool:
            try:
                found = await connect(HOST, port, tls=tls, credentials=Token(shown))
            except AuthenticationError:
                return True
            await left(found)
            return False

        await eventually(does)


async def test_a_new_certificate_is_shown_to_new_connections_and_no_open_one_notices(
    running: Rotating, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def rotate(clients: Clients, second: Authority) -> None:
        # Whoever of the clients connected anew would not trust it: who goes on has not done that.
        later = second.issue("later", server=True)
        running.put(later)
        await all_show(running, later)
        await clients.go_on()

        # Each is broken in another way, and changes nothing but the log.
        whole = later.certificate.read_bytes()
        half, other = tmp_path / "half.pem", second.issue("other", server=True)
        half.write_bytes(whole[: len(whole) // 2])
        for broken in (Issued(half, later.key), Issued(later.certificate, other.key)):
            before = running.told(NOT_TAKEN, "what=tls")
            running.put(broken)
            await running.until_told(before, NOT_TAKEN, "what=tls")
            await all_show(running, later)
            await clients.go_on()
        running.put(other)
        await all_show(running, other)
        await clients.go_on()

    first, second = running.around.authority, Authority(tmp_path / "second")
    old = tmp_path / "old.pem"
    shutil.copy(first.file, old)
    running.trust(first, second)
    shown = Token(signed(READER, "people"))
    async with clients_of(running, old, {"direct": shown, "proxied": shown}) as clients:
        await clients.go_on()
        caplog.clear()
        await rotate(clients, second)
        assert not events(caplog) & INTERRUPTED
        async with Client(running.url, tls=Tls(ca_file=second.file), credentials=shown) as newcomer:
            follower = Follower(newcomer, "later")
            await clients.all_is_right(follower)
            await follower.stop()


@pytest.mark.long
async def test_tokens_of_a_new_key_take_the_place_of_the_old_ones(
    running: Rotating, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = signed(READER, "people"), signed(READER, "later")
    file = tmp_path / "reader.token"
    file.write_text(old)
    current = [old]

    async def rotate(clients: Clients) -> None:
        await running.taken("keys", lambda: running.set_keys("people", "proxies", "later"))
        for shown in (old, new):
            for connection in await let_in(running, shown):
                await left(connection)
        await clients.go_on()

        # What is no set of keys changes nothing.
        before = running.told(NOT_TAKEN, "keys")
        running.around.keys.write_text('{"keys": [')
        await running.until_told(before, NOT_TAKEN, "keys")
        held = await let_in(running, old)
        await clients.go_on()

        file.write_text(new)
        current[:] = [new]
        running.around.set_token(signed(PROXY, "later"))
        running.set_keys("later")
        await is_refused(running, old)
        await until(lambda: not any(each.is_open for each in held))  # they cannot show another
        for connection in await let_in(running, new):
            await left(connection)
        await clients.go_on()

    shown = {"direct": Token(file), "proxied": Token(lambda: current[0])}
    async with clients_of(running, running.around.authority.file, shown) as clients:
        await clients.go_on()
        caplog.clear()
        await rotate(clients)
        assert not events(caplog) & INTERRUPTED
        await clients.all_is_right()
