"""Who may connect to a node, by either port: what is shown, in time, and never told to anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.broker.security import credentials
from anabranch.broker.security.admission import WireAdmission
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.security.credentials import Credentials, RefusalReason
from anabranch.broker.security.node import node_security
from anabranch.broker.settings import load_settings
from anabranch.broker.settings.ports import PortFields
from anabranch.core.fold.replica import MemoryReplica
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.connection import ConnectionLimits
from support.authority import Authority
from support.secured import SecuredNode, answer_to, bearer, secured_node, tokens_alone
from support.tls_port import tls_port
from support.tokens import SECRET, token
from support.waiting import until
from support.wire import Raw

LIST = "/admin/v2/brokers"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
LAYOUT = "/admin/v2/scalable/public/default/orders"


async def turned_away(client: Raw) -> str:
    answer = await client.told()
    assert answer.error.error == ServerError.AuthenticationError
    assert await client.answer() is None
    return answer.error.message


async def test_every_way_in_asks_who_comes_but_those_of_probes(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path, authenticateMetricsEndpoint=True)) as node:
        for path in (LIST, LOOKUP, LAYOUT, f"{LOOKUP}/bundle", "/metrics", "/admin/v2/tenants"):
            answer = await node.ask("GET", path)
            assert answer.status_code == 401, path
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert (await node.ask("GET", path, bearer("ada"))).status_code in (200, 404), path
        for path in ("/livez", "/readyz", f"{LIST}/ready", "/docs", "/openapi.json"):
            assert (await node.ask("GET", path)).status_code == 200, path
            assert (await node.ask("GET", path, bearer("ada", seconds=-9))).status_code == 401
        for method, data in (("", b""), ("none", b""), ("token", b""), ("token", b"x" * 20_000)):
            async with node.connect(method, data) as client:
                assert await turned_away(client)
        assert node.security.authenticator.refused[RefusalReason.MISSING] == 6 + 2  # by each port


async def test_of_several_ways_none_makes_good_what_another_has_wrong(tmp_path: Path) -> None:
    trusted = tmp_path / "authority.pem"
    settings = {
        "authenticationProviders": "tls,token",
        "tlsTrustCertsFilePath": str(trusted),
    }

    async with secured_node(**{**tokens_alone(tmp_path), **settings}) as node:
        assert (await node.ask("GET", LIST, bearer("ada"))).status_code == 200
        for shown in ("Basic YWRhOnNlY3JldA==", f"Digest {token('ada')}"):
            assert (await node.ask("GET", LIST, shown)).status_code == 401
        async with node.connect("token", token("bob").encode()) as client:
            await client.welcomed()
        # The same bytes shown as something else, and without saying as what.
        for method in ("tls", "", "basic", "kerberos"):
            async with node.connect(method, token("bob").encode()) as client:
                await turned_away(client)
        assert node.security.authenticator.admitted == {"tls": 0, "token": 2}


async def test_nobody_is_anonymous_unless_that_role_is_named(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path, anonymousUserRole="guest")) as node:
        assert (await node.ask("GET", LIST)).status_code == 200
        assert (await node.ask("GET", LIST, bearer("ada", seconds=-60))).status_code == 401
        async with node.connect() as client:
            await client.welcomed()
        async with node.connect("token", b"wrong") as client:
            await turned_away(client)


async def test_who_names_somebody_else_and_is_no_proxy_is_noted_each_time(tmp_path: Path) -> None:
    """Also whoever was let in just before, by the same token; and who says nothing of itself."""

    async with secured_node(
        **tokens_alone(tmp_path, anonymousUserRole="guest", proxyRoles="gate")
    ) as node:

        async def asked(shown: str, **told: str) -> int:
            return (await node.ask("GET", LIST, shown, **told)).status_code

        refused = node.security.authenticator.refused
        for number, shown in enumerate((bearer("ada"), bearer("ada"), ""), 1):
            assert await asked(shown) == 200
            with capture_logs() as logged:
                assert await asked(shown, X_Original_Principal="root") == 403
            assert refused["proxy"] == number
            assert [line["reason"] for line in logged] == (["proxy"] if number == 1 else [])
        async with node.connect(original_principal="root") as client:
            await turned_away(client)


async def test_names_that_are_no_text_are_not_taken_for_one_another(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path, proxyRoles="gate")) as node:
        for name, wanted in ((b"b\xc3\xa9a", 200), (b"b\xe9a", 401), (b"b\xe8a", 401)):
            headers = [(b"authorization", bearer("gate").encode()), (b"x-original-principal", name)]
            answer = await node.http.get(LIST, headers=headers)
            assert answer.status_code == wanted, answer.text


# --- a connection that outlives what it has shown -------------------------------------------------


@asynccontextmanager
async def short_lived(
    node: SecuredNode, seconds: int, *, refreshes: bool = True
) -> AsyncIterator[Raw]:
    """Let in by a token that is about to expire; on a machine that was too slow, by the next."""
    while True:
        async with node.connect(
            "token", token(seconds=seconds).encode(), refreshes=refreshes
        ) as client:
            answer = await client.told()
            if answer.type == BaseCommand.CONNECTED:
                yield client
                return
            assert "has expired" in answer.error.message


async def test_a_connection_is_asked_again_when_its_token_expires(tmp_path: Path) -> None:
    async def is_asked(client: Raw) -> None:
        asked = await client.told()
        assert asked.type == BaseCommand.AUTH_CHALLENGE
        assert asked.authChallenge.challenge.auth_method_name == "token"
        assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"

    async def shows(client: Raw, anew: str) -> BaseCommand:
        shown = pb.AuthData(auth_method_name="token", auth_data=anew.encode())
        return await answer_to(client, pb.CommandAuthResponse(response=shown))

    async with secured_node(**tokens_alone(tmp_path)) as node:
        again = BaseCommand()
        while again.type != BaseCommand.AUTH_CHALLENGE:  # which asks for one after the new one
            async with short_lived(node, 2) as client:
                await is_asked(client)
                again = await shows(client, token(seconds=2))
                if again.type == BaseCommand.ERROR:  # as on a machine that was too slow
                    assert "has expired" in again.error.message
                    continue
                refused = await shows(client, token("eve"))
                assert "is ada's" in refused.error.message
                assert await client.answer() is None


async def test_a_connection_that_does_not_or_cannot_answer_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PortFields, "wire_limits", ConnectionLimits(handshake_s_max=0.2))
    async with secured_node(**tokens_alone(tmp_path)) as node:
        async with short_lived(node, 1) as client:
            assert (await client.told()).type == BaseCommand.AUTH_CHALLENGE
            assert "nothing was shown anew within 0.2 s" in await turned_away(client)
        async with short_lived(node, 1, refreshes=False) as client:
            assert "has expired" in await turned_away(client)
        async with node.connect("token", token().encode()) as client:  # nobody has asked it
            await client.welcomed()
            answer = await answer_to(client, pb.CommandAuthResponse())
            assert answer.error.error == ServerError.NotAllowedError


# --- what is told, and to whom --------------------------------------------------------------------


async def test_no_token_is_ever_told(tmp_path: Path) -> None:
    good, bad = token("ada"), token("eve", key=bytes(64))
    secrets = [SECRET.hex(), *(part for each in (good, bad) for part in each.split(".")[1:])]
    told: list[str] = []
    with capture_logs() as logged:
        async with secured_node(**tokens_alone(tmp_path, logLevel="debug")) as node:
            for shown in (
                *(f"Bearer {good}", f"Bearer {bad}", f"Bearer {good}x", f"Digest {good}"),
                f"Basic {good}",
            ):
                answer = await node.ask("GET", "/admin/v2/tenants/none", shown)
                told.append(f"{answer.text} {dict(answer.headers)}")
            for method, data in (
                *(("token", good), ("token", bad), ("basic", good), (good, good), ("", good)),
            ):
                async with node.connect(method, data.encode()) as client:
                    told.append(str(await client.answer()))
            shown_again = Credentials("token", good.encode())
            told.append(repr(shown_again) + str(node.security.authenticator.__dict__))
    told += [str(line) for line in logged]
    assert any(line["event"] == "authentication.refused" for line in logged)
    for line in told:
        for secret in secrets:
            assert secret not in line


async def test_refusals_are_counted_each_time_and_logged_once(tmp_path: Path) -> None:
    """Those who say nothing of themselves, too, whichever path answers them."""

    async with secured_node(**tokens_alone(tmp_path)) as node:
        with capture_logs() as logged:
            for path in (LIST, LOOKUP, LAYOUT):
                for shown in ("", bearer("ada", seconds=-60)):
                    assert (await node.ask("GET", path, shown)).status_code == 401
            assert (await node.ask("GET", "/livez")).status_code == 200
        lines = [line for line in logged if line["event"] == "authentication.refused"]
        assert [(each["reason"], each["peer"]) for each in lines] == [
            ("missing", "127.0.0.1"),
            ("expired", "127.0.0.1"),
        ]
        assert lines[1]["method"] == "token"
        refused = node.security.authenticator.refused
        assert (refused["missing"], refused["expired"]) == (3, 3)


def test_a_node_that_anybody_can_reach_says_what_they_may_do(tmp_path: Path) -> None:
    tokens = tokens_alone(tmp_path)
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "ports may do everything"),
        ({"bindAddress": "::"}, "ports may do everything"),
        (tokens, "says who they are may do everything"),
        ({**tokens, "authorizationEnabled": True}, ""),
        ({"bindAddress": "::1"}, ""),
        ({"bindAddress": "localhost"}, ""),
    ]
    for given, said in cases:
        with capture_logs() as logged:
            node_security(load_settings(None, {}, given), MemoryReplica)
        told = [line["why"] for line in logged if line["event"] == "security.open"]
        assert len(told) == bool(said)
        assert all(line.endswith(said) for line in told)


# --- what the authenticator remembers of what was shown, and of whom ------------------------------


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
            assert (await authenticator.admit(shown, HOST)).principal.role == role
    for shown in (credentials.Credentials("tls", b"none"), credentials.Credentials("tls", b"")):
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
