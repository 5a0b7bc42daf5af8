"""Who may connect to a node, by either port: what is shown, in time, and never told to anybody."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.broker.security.certificates import CertificateProvider
from anabranch.broker.security.credentials import Credentials, CredentialsError, RefusalReason
from anabranch.broker.security.node import node_security
from anabranch.broker.settings import load_settings
from anabranch.core.log.records import TenantChange
from anabranch.core.log.replica import MemoryReplica
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.memory_cluster import MemoryCluster
from support.secured import (
    SecuredNode,
    answer_to,
    bearer,
    records,
    tokens_alone,
    users_file,
    with_secured,
)
from support.tokens import RSA_KEY, SECRET, token
from support.wire import Raw

LIST = "/admin/v2/brokers"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
LAYOUT = "/admin/v2/scalable/public/default/orders"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def connected(client: Raw) -> None:
    answer = await client.answer()
    assert answer is not None
    assert answer.type == BaseCommand.CONNECTED


async def turned_away(client: Raw) -> str:
    answer = await client.answer()
    assert answer is not None
    assert answer.error.error == ServerError.AuthenticationError
    assert await client.answer() is None
    return answer.error.message


def test_every_way_in_asks_who_comes_but_those_of_probes(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for path in (LIST, LOOKUP, LAYOUT, f"{LOOKUP}/bundle", "/metrics", "/admin/v2/tenants"):
            answer = await node.ask("GET", path)
            assert answer.status_code == 401, path
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert (await node.ask("GET", path, bearer("ada"))).status_code in (200, 404), path
        for path in ("/livez", "/readyz", f"{LIST}/ready", "/docs", "/openapi.json"):
            assert (await node.ask("GET", path)).status_code == 200, path
            assert (await node.ask("GET", path, bearer("ada", seconds=-9))).status_code == 401
        async with node.connect("token", token().encode()) as client:
            await connected(client)
            asked = pb.CommandLookupTopic(topic="persistent://public/default/orders", request_id=1)
            found = await answer_to(client, asked)
            assert found is not None
            assert found.lookupTopicResponse.brokerServiceUrl
        for method, data in (("", b""), ("none", b""), ("token", b""), ("token", b"x" * 20_000)):
            async with node.connect(method, data) as client:
                assert await turned_away(client)
        assert node.security.authenticator.refused[RefusalReason.MISSING] == 6 + 2  # by each port

    with_secured(test, **tokens_alone(tmp_path, authenticateMetricsEndpoint=True))


def test_a_bad_token_is_refused_alike_by_both_ports(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for bad in (
            token(seconds=-60),
            token(nbf=int(time.time() + 600)),
            token(key=bytes(64)),
            token(key=RSA_KEY, algorithm="RS256"),
            token()[:-4],
            "no.token.at.all",
        ):
            answer = await node.ask("GET", LIST, f"Bearer {bad}")
            assert answer.status_code == 401
            async with node.connect("token", bad.encode()) as client:
                said = await turned_away(client)
            assert answer.json()["reason"] == said
        for header in ("Bearer", "Digest x", "Basic !!!", f"bearer{token()}"):
            assert (await node.ask("GET", LIST, header)).status_code == 401

    with_secured(test, **tokens_alone(tmp_path, perIpLimitExemptAddresses="127.0.0.1"))


def test_several_ways_are_taken_and_what_is_wrong_is_not_made_good_by_another(
    tmp_path: Path,
) -> None:
    trusted = tmp_path / "authority.pem"
    settings = {
        "authenticationProviders": "basic,tls,token",
        "basicAuthConf": users_file(tmp_path, ada="secret", bob="other"),
        "tlsTrustCertsFilePath": str(trusted),
    }

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for shown in (basic("ada", "secret"), bearer("ada")):
            assert (await node.ask("GET", LIST, shown)).status_code == 200
        for user, password in (("ada", "other"), ("eve", "secret"), ("ada", ""), ("", "secret")):
            assert (await node.ask("GET", LIST, basic(user, password))).status_code == 401
        async with node.connect("basic", b"bob:other") as client:
            await connected(client)
        # The same bytes shown as something else, and without saying as what.
        for method in ("token", "tls", "", "kerberos"):
            async with node.connect(method, b"bob:other") as client:
                await turned_away(client)
        assert node.security.authenticator.admitted == {"basic": 2, "tls": 0, "token": 1}

    with_secured(test, **{**tokens_alone(tmp_path), **settings})


def test_a_certificate_s_common_name_is_the_role() -> None:
    def verify(certificate: dict[str, object] | None) -> str:
        shown = Credentials("", b"", certificate)
        if not CertificateProvider().takes(shown):
            return ""
        try:
            return asyncio.run(CertificateProvider().verify(shown)).role
        except CredentialsError as error:
            return error.kind.value

    def named(*names: str) -> dict[str, object]:
        subject = tuple((("commonName", name),) for name in names)
        return {"subject": ((("organizationName", "acme"),), *subject)}

    assert verify(named("ada")) == "ada"
    assert verify(None) == ""
    assert verify(named()) == verify(named("a", "b")) == verify(named(" ada")) == "role"
    with pytest.raises(CredentialsError) as raised:
        asyncio.run(CertificateProvider().verify(Credentials("tls", b"")))
    assert raised.value.kind is RefusalReason.MISSING


def test_nobody_is_anonymous_unless_that_role_is_named(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        assert (await node.ask("GET", LIST)).status_code == 200
        assert (await node.ask("GET", LIST, bearer("ada", seconds=-60))).status_code == 401
        async with node.connect() as client:
            await connected(client)
        async with node.connect("token", b"wrong") as client:
            await turned_away(client)

    with_secured(test, **tokens_alone(tmp_path, anonymousUserRole="guest"))


def test_what_is_changed_says_on_the_log_who_asked_for_it(tmp_path: Path) -> None:
    async def test(node: SecuredNode, cluster: MemoryCluster) -> None:
        body = {"adminRoles": [], "allowedClusters": ["standalone"]}
        answer = await node.ask("PUT", "/admin/v2/tenants/acme", bearer("ada"), body)
        assert answer.status_code == 204
        found = [each for each in records(cluster) if isinstance(each, TenantChange)]
        assert [each.principal for each in found][-1] == "ada"

    with_secured(test, **tokens_alone(tmp_path))


def test_a_proxy_asks_for_others_and_nobody_else_does(tmp_path: Path) -> None:
    async def test(node: SecuredNode, cluster: MemoryCluster) -> None:
        body = {"adminRoles": [], "allowedClusters": ["standalone"]}

        async def asked(role: str, original: str) -> int:
            path = f"/admin/v2/tenants/{role}-{original}"
            told = {"X_Original_Principal": original}
            return (await node.ask("PUT", path, bearer(role), body, **told)).status_code

        assert await asked("gate", "ada") == 204
        assert await asked("ada", "bob") == 403
        assert await asked("gate", "gate") == 403
        assert await asked("gate", "other-gate") == 403
        found = [each for each in records(cluster) if isinstance(each, TenantChange)]
        assert found[-1].principal == "ada"
        data = token("gate").encode()
        async with node.connect("token", data, original_principal="ada") as client:
            await connected(client)
            (peer,) = node.wire.peers
            assert (peer.principal.role, peer.principal.proxied_by) == ("ada", "gate")
        async with node.connect("token", token("bob").encode(), original_principal="ada") as client:
            await turned_away(client)

    with_secured(test, **tokens_alone(tmp_path, proxyRoles="gate,other-gate"))


def test_who_names_somebody_else_and_is_no_proxy_is_noted_each_time(tmp_path: Path) -> None:
    """Also whoever was let in just before, by the same token; and who says nothing of itself."""

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
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

    with_secured(test, **tokens_alone(tmp_path, anonymousUserRole="guest", proxyRoles="gate"))


def test_names_that_are_no_text_are_not_taken_for_one_another(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for name, wanted in ((b"b\xc3\xa9a", 200), (b"b\xe9a", 401), (b"b\xe8a", 401)):
            headers = [(b"authorization", bearer("gate").encode()), (b"x-original-principal", name)]
            answer = await node.http.get(LIST, headers=headers)
            assert answer.status_code == wanted, answer.text

    with_secured(test, **tokens_alone(tmp_path, proxyRoles="gate"))


# --- a connection that outlives what it has shown -------------------------------------------------


def test_a_connection_is_asked_again_when_its_token_expires(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        async with node.connect("token", token(seconds=2).encode()) as client:
            await connected(client)
            asked = await client.answer()
            assert asked is not None
            assert asked.type == BaseCommand.AUTH_CHALLENGE
            assert asked.authChallenge.challenge.auth_method_name == "token"
            assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
            shown = pb.AuthData(auth_method_name="token", auth_data=token(seconds=2).encode())
            again = await answer_to(client, pb.CommandAuthResponse(response=shown))
            assert again is not None
            assert again.type == BaseCommand.AUTH_CHALLENGE  # of the new one
            other = pb.AuthData(auth_method_name="token", auth_data=token("eve").encode())
            refused = await answer_to(client, pb.CommandAuthResponse(response=other))
            assert refused is not None
            assert "is ada's" in refused.error.message
            assert await client.answer() is None

    with_secured(test, **tokens_alone(tmp_path))


def test_a_connection_that_does_not_answer_is_closed_and_so_is_one_that_cannot(
    tmp_path: Path,
) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        async with node.connect("token", token(seconds=1).encode()) as client:
            await connected(client)
            asked = await client.answer()
            assert asked is not None
            assert asked.type == BaseCommand.AUTH_CHALLENGE
            assert "nothing was shown anew within 0.2 s" in await turned_away(client)
        data = token(seconds=1).encode()
        async with node.connect("token", data, protocol_version=10) as client:
            await connected(client)
            assert "has expired" in await turned_away(client)
        async with node.connect("token", token().encode()) as client:  # nobody has asked it
            await connected(client)
            answer = await answer_to(client, pb.CommandAuthResponse())
            assert answer is not None
            assert answer.error.error == ServerError.NotAllowedError

    with_secured(test, **tokens_alone(tmp_path, brokerHandshakeTimeoutMillis=200))


# --- what is told, and to whom --------------------------------------------------------------------


def test_no_token_and_no_password_is_ever_told(tmp_path: Path) -> None:
    settings = {
        "authenticationProviders": "token,basic",
        "basicAuthConf": users_file(tmp_path, ada="corr3ct-horse"),
        "logLevel": "debug",
    }
    good, bad = token("ada"), token("eve", key=bytes(64))
    secrets = ["corr3ct-horse", "wr0ng-horse", SECRET.hex()]
    secrets += [part for each in (good, bad) for part in each.split(".")[1:]]
    secrets += [
        basic("ada", each).removeprefix("Basic ") for each in ("corr3ct-horse", "wr0ng-horse")
    ]
    told: list[str] = []

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for shown in (
            *(f"Bearer {good}", f"Bearer {bad}", f"Bearer {good}x", f"Digest {good}"),
            *(basic("ada", "corr3ct-horse"), basic("ada", "wr0ng-horse"), f"Basic {good}"),
        ):
            answer = await node.ask("GET", "/admin/v2/tenants/none", shown)
            told.append(f"{answer.text} {dict(answer.headers)}")
        for method, data in (
            *(("token", good), ("token", bad), ("basic", "ada:corr3ct-horse")),
            *(("basic", "ada:wr0ng-horse"), (good, good), ("", good)),
        ):
            async with node.connect(method, data.encode()) as client:
                answered = await client.answer()
                told.append(str(answered))
        shown_again = Credentials("token", good.encode())
        told.append(repr(shown_again) + str(node.security.authenticator.__dict__))

    with capture_logs() as logged:
        with_secured(test, **{**tokens_alone(tmp_path), **settings})
    told += [str(line) for line in logged]
    assert any(line["event"] == "authentication.refused" for line in logged)
    for line in told:
        for secret in secrets:
            assert secret not in line


def test_refusals_are_logged_with_method_address_and_why(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        with capture_logs() as logged:
            await node.ask("GET", LIST, bearer("ada", seconds=-60))
            await node.ask("GET", LIST, bearer("ada", seconds=-60))
        lines = [line for line in logged if line["event"] == "authentication.refused"]
        assert len(lines) == 1
        assert lines[0]["method"] == "token"
        assert lines[0]["peer"] == "127.0.0.1"
        assert lines[0]["reason"] == "expired"
        assert node.security.authenticator.refused["expired"] == 2

    with_secured(test, **tokens_alone(tmp_path))


def test_who_says_nothing_of_itself_is_counted_and_logged(tmp_path: Path) -> None:
    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        refused = node.security.authenticator.refused
        with capture_logs() as logged:
            for number, path in enumerate((LIST, LOOKUP, LAYOUT), 1):
                assert (await node.ask("GET", path)).status_code == 401
                assert refused["missing"] == number
            assert (await node.ask("GET", "/livez")).status_code == 200
        found = [line for line in logged if line["event"] == "authentication.refused"]
        assert [(each["reason"], each["peer"]) for each in found] == [("missing", "127.0.0.1")]
        assert refused["missing"] == 3

    with_secured(test, **tokens_alone(tmp_path))


def test_whoever_guesses_is_answered_late_and_who_is_right_at_once(tmp_path: Path) -> None:
    settings = {
        "authenticationProviders": "basic,token",
        "basicAuthConf": users_file(tmp_path, ada="secret"),
    }

    async def test(node: SecuredNode, _: MemoryCluster) -> None:
        for _try in range(5):
            assert (await node.ask("GET", LIST, basic("ada", "?"))).status_code == 401
        guesses = [
            asyncio.create_task(node.ask("GET", LIST, basic("ada", f"guess {number}")))
            for number in range(40)
        ]
        found = [task.result().status_code for task in (await asyncio.wait(guesses))[0]]
        assert found.count(401) + found.count(429) + found.count(503) == 40
        assert 429 in found
        refused = node.security.authenticator.refused
        assert refused["guesses"] == found.count(429)
        for shown in (basic("ada", "secret"), bearer("bob")):
            assert (await node.ask("GET", LIST, shown)).status_code == 200

    with_secured(test, **{**tokens_alone(tmp_path), **settings})


def test_a_node_that_anybody_can_reach_says_what_they_may_do(tmp_path: Path) -> None:
    tokens = tokens_alone(tmp_path)
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "ports may do everything"),
        ({"bindAddress": "::"}, "ports may do everything"),
        (tokens, "says who they are may do everything"),
        ({**tokens, "authorizationEnabled": True}, ""),
        ({"bindAddress": "127.0.0.1"}, ""),
        ({"bindAddress": "::1"}, ""),
        ({"bindAddress": "localhost"}, ""),
    ]
    for given, said in cases:
        with capture_logs() as logged:
            node_security(load_settings(None, {}, given), MemoryReplica)
        told = [line["why"] for line in logged if line["event"] == "security.open"]
        assert len(told) == bool(said)
        assert all(line.endswith(said) for line in told)
