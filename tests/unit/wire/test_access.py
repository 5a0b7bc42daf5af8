"""A client of the binary protocol that shows who it is, and looks whom it speaks to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from anabranch.access import CredentialsError, Tls, TlsFiles, Token
from anabranch.broker.http.server import bind
from anabranch.devkit.ports import free_port
from anabranch.wire.anabranch_pb2 import AuthData, CommandConnect, CommandLookupTopic, ServerError
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import AuthenticationError, ConnectError, TlsError, TurnedAwayError
from anabranch.wire.server.identity import AdmittedPeer, Visitor
from anabranch.wire.server.server import WireServer
from support.authority import Authority
from support.secured import SecuredNode, bearer, secured_node, tokens_alone
from support.tls_port import tls_port
from support.tokens import token
from support.waiting import WAIT_S, until
from support.wire import HOST, no_routes, on_both_loops

_SOON_S = 8  # when a token expires, and yet not before it was shown


async def joined(node: SecuredNode, credentials: Token | None) -> ClientConnection:
    return await connect(HOST, node.wire.port, timeout_s=WAIT_S, credentials=credentials)


async def left(connection: ClientConnection) -> str:
    connection.abort("the test is over")
    return await connection.closed


async def test_a_token_lets_a_client_in(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token("eve"))

    async with secured_node(**tokens_alone(tmp_path)) as node:
        for shown in (Token(token("ada")), Token(file)):
            await left(await joined(node, shown))
        assert node.security.authenticator.admitted == {"token": 2}


async def test_who_is_refused_is_told_why_and_what_to_do(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path)) as node:
        expired = token("ada", seconds=-60)
        for shown, remedy in (
            (None, "Show who you are"),
            (Token(expired), "expired.*Give another token"),
        ):
            with pytest.raises(AuthenticationError, match=remedy) as refused:
                await joined(node, shown)
            assert expired not in str(refused.value)


async def test_who_cannot_be_judged_now_is_to_come_again(tmp_path: Path) -> None:
    """As there is no key to be had: nothing is wrong with what is shown."""
    settings = {
        "authenticationEnabled": True,
        "authenticationProviders": "token",
        "tokenKeySet": f"https://{HOST}:{free_port(HOST)}/keys",
        "tokenIssuer": "us",
        "tokenAudience": "them",
    }

    async with secured_node(**settings) as node:
        with pytest.raises(TurnedAwayError, match="no key to verify tokens") as busy:
            await joined(node, Token(token("ada", kid="one")))
        assert busy.value.code == ServerError.ServiceNotReady
        assert (await node.ask("GET", "/admin/v2/tenants", bearer("ada"))).status_code == 503


class _Thinking:
    """Whoever admits clients, and never comes to an end with it."""

    async def admit(self, connect: CommandConnect, visitor: Visitor) -> AdmittedPeer:
        await asyncio.Event().wait()
        return AdmittedPeer(visitor.principal)

    async def admit_again(self, shown: AuthData, visitor: Visitor) -> AdmittedPeer:
        return AdmittedPeer(visitor.principal)


@on_both_loops
async def test_whom_a_node_cannot_judge_in_time_is_not_told_that_it_said_nothing() -> None:
    server = WireServer(no_routes, "test", ConnectionLimits(handshake_s_max=0.2), _Thinking())
    with bind(HOST, 0) as held:
        await server.listen(held)
        with pytest.raises(TurnedAwayError, match="was not made sure of") as late:
            await connect(HOST, server.port, timeout_s=WAIT_S, credentials=Token(token()))
        await server.stop()
    assert late.value.code == ServerError.ServiceNotReady


async def test_what_has_expired_is_asked_for_once_more(tmp_path: Path) -> None:
    made = iter([token("ada", seconds=-60), token("ada")])

    async with secured_node(**tokens_alone(tmp_path)) as node:
        await left(await joined(node, Token(lambda: next(made))))
    assert next(made, None) is None


async def test_a_challenge_is_answered_with_a_new_token(tmp_path: Path) -> None:
    shown: list[str] = []

    async with secured_node(**tokens_alone(tmp_path)) as node:

        async def fetched() -> str:
            await asyncio.sleep(0)
            shown.append(
                token("ada", seconds=_SOON_S if len(shown) < 2 else 3_600, count=len(shown))
            )
            return shown[-1]

        connection = await joined(node, Token(fetched))
        await until(lambda: node.security.authenticator.admitted["token"] == 3)
        assert connection.is_open
        assert len(shown) == 3
        await left(connection)


async def test_a_challenge_that_cannot_be_answered_ends_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token("ada", seconds=_SOON_S))

    async with secured_node(**tokens_alone(tmp_path)) as node:
        connection = await joined(node, Token(file))
        file.unlink()
        async with asyncio.timeout(WAIT_S):
            assert "cannot be read" in await asyncio.shield(connection.closed)


async def test_whoever_makes_the_token_has_the_time_of_a_connection(tmp_path: Path) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    async with secured_node(**tokens_alone(tmp_path)) as node:
        with pytest.raises(CredentialsError, match=r"within 0\.05 s"):
            await connect(HOST, node.wire.port, timeout_s=0.05, credentials=Token(never))


@on_both_loops
async def test_tls_is_spoken_with_who_is_trusted_and_nobody_else(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    server = authority.issue("server", server=True)
    elsewhere = authority.issue("elsewhere", server=True, host="127.0.0.2")
    old = authority.issue("old", server=True, ends=-timedelta(minutes=1))
    trusting = TlsFiles(Tls(ca_file=authority.file))

    async def look_up(port: int, tls: TlsFiles | None) -> None:
        connection = await connect(HOST, port, timeout_s=WAIT_S, tls=tls)
        answer = await connection.request(CommandLookupTopic(topic="a"), WAIT_S)
        assert answer.lookupTopicResponse.brokerServiceUrl == "a"
        await left(connection)

    async with tls_port(server) as port:
        await look_up(port.binary_port, trusting)
        with pytest.raises(TlsError, match=r"not trusted.*ca_file, --tls-ca"):
            await look_up(port.binary_port, TlsFiles(Tls(ca_file=other.file)))
        with pytest.raises(TlsError, match="not trusted"):
            await look_up(port.binary_port, TlsFiles(Tls()))
        with pytest.raises(ConnectError, match=r"brokerServicePortTls with pulsar\+ssl"):
            await look_up(port.binary_port, None)
    async with tls_port(elsewhere) as port:
        with pytest.raises(TlsError, match=r"not for 127\.0\.0\.1"):
            await look_up(port.binary_port, trusting)
        anyhow = Tls(ca_file=authority.file, dangerously_accept_any_host_name=True)
        await look_up(port.binary_port, TlsFiles(anyhow))
    async with tls_port(old) as port:
        with pytest.raises(TlsError, match="has expired"):
            await look_up(port.binary_port, trusting)


@on_both_loops
async def test_a_client_shows_its_certificate_where_it_has_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, own = authority.issue("server", server=True), authority.issue("ada")
    shown = Tls(ca_file=authority.file, certificate_file=own.certificate, key_file=own.key)

    async with tls_port(server, authority.file, required=True) as port:
        await left(await connect(HOST, port.binary_port, tls=TlsFiles(shown)))
        with pytest.raises(ConnectError, match="certificate"):
            await connect(HOST, port.binary_port, tls=TlsFiles(Tls(ca_file=authority.file)))


async def test_a_port_without_tls_is_told_apart(tmp_path: Path) -> None:
    trusting = TlsFiles(Tls(ca_file=Authority(tmp_path / "one").file))

    async with secured_node(**tokens_alone(tmp_path)) as node:
        with pytest.raises(ConnectError, match=r"TLS|closed|reset"):
            await connect(HOST, node.wire.port, timeout_s=WAIT_S, tls=trusting)
