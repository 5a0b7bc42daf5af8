"""Certificates are replaced while secured clients produce and consume."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.access import Tls, Token
from anabranch.client import Client
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.authority import Authority, Issued
from support.rotation import Clients, Follower, Rotating, clients_of, rotating, signed
from support.secured_proxy import READER
from support.waiting import eventually

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
