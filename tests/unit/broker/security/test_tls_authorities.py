"""Authorities that are trusted no more: who is connected by one of theirs is disconnected."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import uvloop
from structlog.testing import capture_logs

from anabranch.broker.security.certified import ShownChain, trusted_of
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from support.authority import Authority
from support.tls_port import counted, tls_port
from support.waiting import WAIT_S, until
from support.wire import HOST, Raw


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_who_is_connected_is_disconnected_once_its_authority_is_gone(
    loop: Callable[[Coroutine[None, None, None]], None], tmp_path: Path
) -> None:
    """By either port; who has another authority, or no certificate, notices nothing."""
    ours, next_ = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "next", "next")
    server = ours.issue("server", server=True)
    trusted = tmp_path / "trusted.pem"

    def context_of(issuer: Authority | None) -> ssl.SSLContext:
        context = ours.client()
        if issuer is not None:
            context.load_cert_chain(*issuer.issue("ada"))
        return context

    async def still(client: Raw) -> bool:
        client.send(commands.envelope(pb.CommandPing()))
        return await client.answer() is not None

    async def test() -> None:
        trusted.write_bytes(ours.pem + next_.pem)
        async with tls_port(server, trusted) as port:
            gone, kept, plain = [await port.connect(context_of(o)) for o in (ours, next_, None)]
            for each in (gone, kept, plain):
                await each.handshake()
            web = httpx.AsyncClient(verify=context_of(ours), timeout=WAIT_S)
            assert (await web.get(f"https://{HOST}:{port.web_port}/")).text == "https"
            trusted.write_bytes(next_.pem + ours.pem)  # the same ones
            await port.verify_again()
            assert await still(gone)
            assert counted(port.binary) == counted(port.web) == {}
            trusted.write_bytes(next_.pem)
            with capture_logs() as logged:
                await port.verify_again()
            assert await gone.answer() is None
            assert counted(port.binary) == counted(port.web) == {"untrusted": 1}
            assert [line["reason"] for line in logged if line["event"] == "tls.refused"] == [
                "untrusted"
            ] * 2
            with pytest.raises(httpx.TransportError):  # by a new connection, which is refused
                await web.get(f"https://{HOST}:{port.web_port}/")
            assert await still(kept)
            assert await still(plain)
            for client in (gone, kept, plain):
                client.writer.close()
            await web.aclose()
            await until(lambda: port.certified == 0)

    loop(test())


def test_whom_an_authority_has_not_signed_is_not_trusted(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    made = (ours.issue("ada"), other.issue("eve"), ours.issue("old", ends=-timedelta(hours=1)))
    ada, eve, old = (
        ShownChain(ssl.PEM_cert_to_DER_cert(each.certificate.read_text())) for each in made
    )
    broken = ShownChain(b"no certificate")
    own = ssl.PEM_cert_to_DER_cert(ours.pem.decode())
    assert trusted_of((ada, eve, old, broken), [own]) == {ada}
    assert trusted_of((ada,), []) == set()


def test_an_authority_that_openssl_alone_can_read_ends_nothing_else(tmp_path: Path) -> None:
    """Its `critical` is 1, where DER wants 255: there are old ones like that."""
    ours, odd = Authority(tmp_path / "ours"), Authority(tmp_path / "odd")
    ada = ShownChain(ssl.PEM_cert_to_DER_cert(ours.issue("ada").certificate.read_text()))
    own, strict = (ssl.PEM_cert_to_DER_cert(each.pem.decode()) for each in (ours, odd))
    lax = strict.replace(b"\x01\x01\xff", b"\x01\x01\x01")
    context = ssl.create_default_context(cadata=own + lax)
    assert context.cert_store_stats()["x509_ca"] == 2
    assert trusted_of((ada,), context.get_ca_certs(binary_form=True)) == {ada}
    assert trusted_of((ada,), [lax]) == set()
