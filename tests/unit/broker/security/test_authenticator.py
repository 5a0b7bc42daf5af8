"""What the authenticator remembers of what was shown, and of whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.broker.security import credentials
from anabranch.broker.security.admission import WireAdmission
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.security.basic import BasicProvider
from anabranch.broker.settings import load_settings
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from support.authority import Authority
from support.secured import users_file
from support.tls_port import tls_port
from support.waiting import until

HOST = "192.0.2.7"


def named(role: str) -> credentials.Certificate:
    return {"subject": ((("commonName", role),),)}


def authenticator_by(provider: str, **settings: object) -> Authenticator:
    given = {"authenticationEnabled": True, "authenticationProviders": provider, **settings}
    return Authenticator(load_settings(None, {}, given))


async def test_a_certificate_is_its_connection_s_whatever_is_shown_beside_it() -> None:
    """Pulsar's clients in C++ and Python show the data "none" beside every certificate."""
    authenticator = authenticator_by("tls", tlsTrustCertsFilePath="authority.pem")
    for method, data in (("tls", b"none"), ("", b"none"), ("tls", b"")):
        for role in ("root", "eve", "root"):
            shown = credentials.Credentials(method, data, named(role))
            known = authenticator.at_once(shown) or await authenticator.admit(shown, HOST)
            assert known.principal.role == role
    for shown in (credentials.Credentials("tls", b"none"), credentials.Credentials("tls", b"")):
        assert authenticator.at_once(shown) is None
        with pytest.raises(credentials.CredentialsError) as raised:
            await authenticator.admit(shown, HOST)
        assert raised.value.kind is credentials.RefusalReason.MISSING


async def test_a_connection_is_its_certificate_s_and_without_nobody_s(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", server=True)
    hello = pb.CommandConnect(
        client_version="Pulsar-CPP", auth_method_name="tls", auth_data=b"none"
    )

    admission = WireAdmission(authenticator_by("tls", tlsTrustCertsFilePath=str(authority.file)))
    async with tls_port(server, authority.file, admission=admission) as port:
        found: list[str] = []
        for role in ("root", "", "eve", "root"):
            client = await port.connect(authority.client(authority.issue(role) if role else None))
            client.send(commands.envelope(hello))
            answer = await client.told()
            is_in = answer.type == BaseCommand.CONNECTED
            found += [peer.principal.role for peer in port.wire.peers] if is_in else ["-"]
            client.writer.close()
            await until(lambda: not port.wire.peers)
        assert found == ["root", "-", "eve", "root"]


async def test_a_password_that_changes_while_it_is_looked_at_counts_no_more(tmp_path: Path) -> None:
    class Overtaken(BasicProvider):
        """Its file changes after the password was found right, before anybody is told."""

        looks = 0

        async def verify(self, shown: credentials.Credentials) -> credentials.Verified:
            found = await super().verify(shown)
            self.looks += 1
            if self.looks == 1:
                before = self.generation
                users_file(tmp_path, ada="present")
                await until(lambda: self.generation != before)
            return found

    users = users_file(tmp_path, ada="former")
    authenticator = authenticator_by("basic", basicAuthConf=users)
    authenticator.providers = (Overtaken(tmp_path / "users", 0.1),)
    former, present = (
        credentials.Credentials("basic", b"ada:former"),
        credentials.Credentials("basic", b"ada:present"),
    )
    await authenticator.start()
    try:
        for _ in range(2):
            with pytest.raises(credentials.CredentialsError) as raised:
                await authenticator.admit(former, HOST)
            assert raised.value.kind is credentials.RefusalReason.PASSWORD
            assert authenticator.at_once(former) is None
        assert (await authenticator.admit(present, HOST)).principal.role == "ada"
        assert authenticator.at_once(present) is not None
    finally:
        await authenticator.stop()
