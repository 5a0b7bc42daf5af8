"""A proxy that asks who comes, and shows nodes who it is and for whom it asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from structlog.testing import capture_logs

from anabranch.access import Tls, TlsFiles, Token
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings.sources import SettingsError
from anabranch.core.security.changes import asker_of
from anabranch.core.security.principal import Principal, spoken_for
from anabranch.proxy import nodes as nodes_of_proxy
from anabranch.proxy.settings import BINARY, BINARY_TLS, WEB, WEB_TLS, load_proxy_settings
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import connect
from anabranch.wire.errors import AuthenticationError, RefusedError
from support.authority import Authority
from support.binary import subscribe
from support.listing_node import listed
from support.memory_cluster import WAIT_S, until
from support.proxied import HOST
from support.secured import records
from support.secured_proxy import (
    ADMIN,
    BOSS,
    PEOPLE,
    PROXIES,
    PROXY,
    READER,
    ROOT,
    STRANGER,
    SecuredProxy,
    Surroundings,
    furnished_proxy,
    secured_proxy,
    shown,
)
from support.tokens import secret_file, token
from support.waiting import eventually

ORDERS: Final = f"{ADMIN}/scalable/acme/shop/orders"
LOOKUP: Final = "/lookup/v2/topic/topic/acme/shop/orders"
FULL: Final = "topic://acme/shop/orders"
NOT_FOUND: Final = ServerError.TopicNotFound


async def test_each_client_may_through_a_proxy_what_it_may_itself(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path) as (proxy, nodes):
        for role, path, status in (
            (ROOT, f"{ADMIN}/tenants", 200),
            (BOSS, f"{ADMIN}/tenants", 403),
            (READER, ORDERS, 200),
            (STRANGER, ORDERS, 404),
            (PROXY, f"{ADMIN}/tenants", 403),
            ("", ORDERS, 401),
            ("", "/docs", 200),
            ("", "/livez", 200),
            ("", "/metrics", 200),
        ):
            answer = await proxy.ask("GET", path, role)
            assert answer.status_code == status, (role, path, answer.text)
        wrong = await proxy.http.get(ORDERS, headers={"Authorization": "Bearer x.y.z"})
        assert wrong.status_code == 401
        denied = await proxy.ask("POST", f"{ORDERS}/split/0", READER)
        assert denied.status_code == 403
        assert READER in denied.text
        asked = [each for each in records(nodes[0].node.cluster) if getattr(each, "principal", "")]
        told = {(type(each).__name__, asker_of(each)) for each in asked}
        for kind, role in (("TenantChange", ROOT), ("TopicChange", BOSS)):
            assert (kind, Principal(role, PROXY)) in told, "the log names both"
        assert {asker.proxied_by for _, asker in told} == {PROXY}
        assert PROXY not in {asker.role for _, asker in told}


async def test_look_ups_and_lists_are_told_to_whom_may_know_of_them(tmp_path: Path) -> None:
    """By both protocols, and however often."""

    async with furnished_proxy(tmp_path) as (proxy, _):
        urls = proxy.settings.url_of(BINARY), proxy.settings.url_of(BINARY_TLS)
        space = f"{ADMIN}/scalable/acme/shop"
        look_up = pb.CommandLookupTopic(topic=FULL)
        list_all = pb.CommandGetTopicsOfNamespace(namespace="acme/shop")
        async with proxy.client(READER) as reader, proxy.client(STRANGER) as stranger:
            for _round in range(3):
                told = (await proxy.ask("GET", LOOKUP, READER)).json()
                assert (told["brokerUrl"], told["brokerUrlTls"]) == urls
                assert told["httpUrlTls"] == proxy.settings.url_of(WEB_TLS)
                assert (await proxy.ask("GET", space, READER)).json() == [FULL]
                for path in (LOOKUP, space):
                    assert (await proxy.ask("GET", path, STRANGER)).status_code == 404
                    assert (await proxy.ask("GET", path)).status_code == 401
                for asked in (look_up, list_all):
                    assert await _code(stranger, asked) == NOT_FOUND
                said = (await reader.request(look_up, WAIT_S)).lookupTopicResponse
                assert (said.brokerServiceUrl, said.brokerServiceUrlTls) == urls
                listed = await reader.request(list_all, WAIT_S)
                assert list(listed.getTopicsOfNamespaceResponse.topics) == [FULL]
        assert (await proxy.ask("GET", f"{ADMIN}/scalable/acme/secret", READER)).status_code == 404


async def _code(client: Any, message: Any) -> int:
    """The error that a request is answered with; -1 for none."""
    try:
        await client.request(message, WAIT_S)
    except RefusedError as error:
        return int(error.code)
    return -1


async def test_nobody_but_a_proxy_asks_for_somebody_else(tmp_path: Path) -> None:
    """To the proxy by header, and to either by a look-up."""

    async with furnished_proxy(tmp_path, count=1) as (proxy, nodes):
        forged = {"X_Original_Principal": ROOT}
        for path in (f"{ADMIN}/tenants", LOOKUP):
            assert (await proxy.ask("GET", path, STRANGER, **forged)).status_code == 403
        node = nodes[0]
        asked = pb.CommandLookupTopic(topic=FULL, original_principal=ROOT)  # nodes ignore it
        async with proxy.client(STRANGER) as client:
            for _round in range(3):  # also of who has a link by now
                assert await _code(client, asked) == ServerError.AuthorizationError
        tls = TlsFiles(Tls(ca_file=proxy.around.authority.file))
        port = node.node.settings.broker_service_port_tls or 0
        direct = await connect(HOST, port, tls=tls, credentials=Token(shown(STRANGER)))
        assert await _code(direct, asked) == NOT_FOUND
        direct.abort("the test is over")
        speaker = await connect(HOST, port, tls=tls, credentials=Token(shown(PROXY, PROXIES)))
        # It asks for itself, though its role is a superuser's.
        assert await _code(speaker, asked) == ServerError.AuthorizationError
        speaker.abort("the test is over")
        assert node.security is not None
        assert node.security.guard.refused["denied"] > 0


def test_who_a_proxy_may_speak_for() -> None:
    proxies = frozenset((PROXY, "other"))
    speaker = Principal(PROXY, method="token")
    assert spoken_for(speaker, "ada", proxies) == Principal("ada", PROXY, "token")
    for who, original in (
        (Principal("ada"), "bob"),  # is none
        (speaker, "other"),  # another proxy
        (speaker, PROXY),
        (speaker, ""),
        (speaker, " ada"),  # no role
        (Principal("ada", PROXY), "bob"),  # it is spoken for itself
        (Principal(PROXY, "other"), "bob"),
    ):
        assert spoken_for(who, original, proxies) is None, (who, original)


async def test_clients_watch_and_consume_with_their_own_rights(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path) as (proxy, _):
        for role, code in ((READER, -1), (STRANGER, NOT_FOUND), (BOSS, -1)):
            assert await _watched(proxy, role) == [[FULL] if code == -1 else code]
            wanted = subscribe("acme/shop/orders", consumer_name=role)
            async with proxy.client(role) as client:
                assert await _code(client, wanted) == code
        with pytest.raises(AuthenticationError):
            async with proxy.client(""):
                pass


async def _watched(proxy: SecuredProxy, role: str) -> list[object]:
    """The first that a watch of the namespace's topics tells."""
    told: list[object] = []

    def pushed(command: BaseCommand) -> None:
        update = command.watchScalableTopicsUpdate
        told.append(update.error if update.HasField("error") else list(update.snapshot.topics))

    async with proxy.client(role, pushed) as client:
        client.send(pb.CommandWatchScalableTopics(watch_id=1, namespace="acme/shop"))
        await until(lambda: bool(told))
    return told


async def test_a_proxy_whose_token_is_revoked_recovers_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_of_proxy, "REFRESH_S", 0.1)
    async with furnished_proxy(tmp_path) as (proxy, _):

        async def status(path: str, role: str = "") -> int:
            return (await proxy.ask("GET", path, role)).status_code

        async def is_ready(wanted: int) -> bool:
            return await status("/readyz") == wanted

        assert await status("/readyz") == 200
        with capture_logs() as logged:
            proxy.around.set_keys("people")
            await eventually(lambda: is_ready(503))
            assert "do not let this proxy in" in (await proxy.ask("GET", "/readyz")).text
            refused = await proxy.ask("GET", ORDERS, READER)
            assert refused.status_code == 503
            assert "does not let" in refused.text
            assert await status(ORDERS) == 401, "who the client is, the proxy judges as before"
            proxy.around.set_token(shown(PROXY, PEOPLE))
            await eventually(lambda: is_ready(200))
            assert await status(ORDERS, READER) == 200
        events = [line["event"] for line in logged]
        assert "proxy.credentials_refused" in events
        assert "proxy.credentials_taken" in events
        secret = shown(PROXY, PROXIES).split(".")[1]
        assert not any(secret in str(line) for line in logged)


async def test_a_proxy_that_nodes_do_not_know_as_one_is_not_ready(tmp_path: Path) -> None:
    async with furnished_proxy(tmp_path, count=1) as (proxy, nodes):
        named = ",".join(node.web_tls for node in nodes)
        own = tmp_path / "own.token"
        own.write_text(shown("not-a-proxy"))
        told = f"file://{own}"
        changes: dict[str, object] = {"brokerClientAuthenticationParameters": told}
        async with secured_proxy(proxy.around, named, **changes) as other:
            answer = await other.ask("GET", "/readyz")
            assert answer.status_code == 503
            assert "proxyRoles" in answer.text
        distrust = {"brokerClientTrustCertsFilePath": str(Authority(tmp_path / "another").file)}
        async with secured_proxy(proxy.around, named, **distrust) as other:
            answer = await other.ask("GET", ORDERS, READER)
            assert answer.status_code == 503
            assert "by TLS" in answer.text


async def test_a_node_has_another_one_make_a_topic_for_whoever_asks_it(tmp_path: Path) -> None:
    """By TLS, with its own token; and the other node judges what they may."""

    async with furnished_proxy(tmp_path) as (proxy, nodes):
        async with httpx.AsyncClient(verify=proxy.around.authority.client()) as http:

            async def controller(name: str) -> str:
                url = f"https://{nodes[0].web_tls}/lookup/v2/topic/topic/acme/shop/{name}"
                told = {"Authorization": f"Bearer {shown(ROOT)}"}
                return str((await http.get(url, headers=told)).json()["httpUrlTls"])

            home = await controller("orders")
            name = "aside-0"
            for number in range(50):
                name = f"aside-{number}"
                if await controller(name) != home:
                    break
            assert await controller(name) != home
        subscription = f"{ORDERS}/subscriptions/jobs"
        assert (await proxy.ask("PUT", f"{subscription}?type=QUEUE", READER)).status_code == 204
        policy = {"deadLetterTopic": f"acme/shop/{name}", "maxDeliveries": 3}
        path = f"{subscription}/deadLetterPolicy"
        assert (await proxy.ask("PUT", path, READER, policy)).status_code == 403
        assert (await proxy.ask("PUT", path, BOSS, policy)).status_code == 204
        found = [
            each
            for each in records(nodes[0].node.cluster)
            if getattr(each, "topic", "") == f"acme/shop/{name}"
        ]
        assert {getattr(each, "principal", "") for each in found} >= {BOSS}
        assert PROXY not in {getattr(each, "principal", "") for each in found}


def test_what_is_asked_for_anew_is_what_the_file_holds_by_then(tmp_path: Path) -> None:
    """A key goes as soon as its successor's tokens are there: nobody waits for the next look."""
    around = Surroundings(tmp_path)
    access = OutgoingAccess(around.of_proxy("127.0.0.1:1").broker_client, check_s=3_600.0)
    successor = shown(PROXY, PEOPLE)  # made once: it says in which second it was
    around.set_token(successor)
    assert access.credentials is not None
    assert asyncio.run(access.credentials.show()) == successor.encode()


async def test_a_proxy_shows_itself_anew_and_its_client_hears_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "proxy.token"
    first, second = token(PROXY), token(PROXY, seconds=7_200)

    file.write_text(first)

    settings: dict[str, object] = {
        "authenticationEnabled": True,
        "tokenSecretKey": secret_file(tmp_path),
        "brokerClientAuthenticationParameters": str(file),
    }
    async with listed(**settings) as (proxy, node):
        node.believing.seconds = 0.01
        told: list[BaseCommand] = []
        client = await connect(
            HOST, proxy.port, on_push=told.append, credentials=Token(token(READER))
        )
        file.write_text(second)
        for _ in range(3):
            answer = await client.request(pb.CommandGetTopicsOfNamespace(namespace="a/2"), WAIT_S)
            assert len(answer.getTopicsOfNamespaceResponse.topics) == 2
            await client.request(pb.CommandLookupTopic(topic=FULL), WAIT_S)
        await until(lambda: bool(node.believing.shown_anew))
        assert set(node.believing.shown_anew) <= {first.encode(), second.encode()}
        answer = await client.request(pb.CommandGetTopicsOfNamespace(namespace="a/2"), WAIT_S)
        assert (len(answer.getTopicsOfNamespaceResponse.topics), told) == (2, [])
        client.abort("the test is over")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"servicePortTls": 0}, "servicePortTls is given without"),
        ({"servicePort": ""}, "neither servicePort nor servicePortTls"),
        ({"brokerServiceUrl": "x"}, "did you mean"),
        ({"brokerWebServiceURL": "http://node"}, "host:port"),
        ({"brokerWebServiceURL": "ftp://a:1"}, "write http://host:port,host:port, or https://"),
        ({"advertisedAddress": "http://a"}, "write a host name, or URLs"),
        ({"advertisedAddress": "http://a:1,http://b:1"}, "write a host name, or URLs"),
        ({"brokerClientAuthenticationParameters": "token"}, "needs authenticationEnabled"),
        ({"brokerClientAuthenticationParameters": "token:abc"}, "secrets are no settings"),
        ({"authenticationEnabled": True}, "needs tokenSecretKey or tokenPublicKey"),
        ({"superuserRoles": "root"}, "is no setting"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_proxy_settings(None, {}, {"brokerWebServiceURL": "http://a:1", **given})


def test_settings_without_a_node_are_refused() -> None:
    with pytest.raises(SettingsError, match="no node is named"):
        load_proxy_settings(None, {}, {})


def test_clients_are_told_the_ports_by_which_they_reach_the_proxy() -> None:
    told = {"brokerWebServiceURL": "http://a:1", "advertisedAddress": "river.example.com"}
    plain = load_proxy_settings(None, {}, told)
    assert plain.url_of(WEB) == "http://river.example.com:8080"
    assert (plain.url_of(BINARY), plain.url_of(BINARY_TLS)) == (
        "pulsar://river.example.com:6650",
        "",
    )
    told["advertisedAddress"] = "pulsar://[::1]:16650,https://elsewhere.example.com:443"
    mapped = load_proxy_settings(None, {}, told)
    assert mapped.url_of(BINARY) == "pulsar://[::1]:16650"
    assert mapped.url_of(WEB) == "http://[::1]:8080"
