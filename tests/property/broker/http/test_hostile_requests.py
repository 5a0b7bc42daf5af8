"""Whatever is asked over HTTP, of every route that the node describes, by a stranger, somebody of
no right, a tenant's administrator or a superuser: never a failure of the node, and no answer
without the right to it.

Parameters and bodies are made from the node's own OpenAPI document, and wrong in every way.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message
from structlog.testing import capture_logs

from anabranch.broker.http.app import create_app
from anabranch.broker.security.authenticator import CertificateProvider
from anabranch.broker.security.credentials import CERTIFICATE_KEY, Credentials, CredentialsError
from anabranch.core.security.actions import Right
from anabranch.core.security.principal import is_role
from anabranch.core.security.resources import ResourceLevel
from anabranch.core.security.table import REST
from support import steady
from support.secured import ROOT, SecuredNode, bearer, secured_node, tokens_alone
from support.tokens import token

HOME: Final = "public/default"
MARK: Final = "hunter2-is-my-password"  # in what is shown, and nowhere else
ROUTES: Final = sorted(REST.keys() - {"GET /docs", "GET /openapi.json"})

Answer = tuple[int, bytes]

texts = st.one_of(
    st.sampled_from(("public", "default", "orders", "acme", "0", "0x00000000_0xffffffff")),
    st.sampled_from(("..", ".", "%2e%2e", "a/b", "a\x00b", "\u202e", "None", "-1", "1e9", " ")),
    st.text(max_size=20),
    st.just("x" * 3_000),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
PROPERTIES: Final = ("adminRoles", "allowedClusters", "policy", "properties", "enabled", "topic")
documents = st.one_of(
    values,
    st.dictionaries(st.sampled_from(PROPERTIES), values, max_size=4),
    st.lists(st.sampled_from(("consume", "view", "functions", "")), max_size=3),
)
bodies = st.one_of(
    st.just(b""),
    documents.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
    st.sampled_from((b"[" * 5_000, b'{"a":' * 5_000, b"1" * 5_000, b'"\\ud800"', b"\xff")),
)
kinds = st.sampled_from((b"application/json", b"application/json", b"text/plain", b"", b"\xff"))
queries = st.dictionaries(
    st.sampled_from(("authoritative", "force", "numInitialSegments", "x", "limit", "after")),
    texts,
    max_size=3,
)
# Which of the routes, in the order of their names.
requests = st.tuples(
    st.integers(0, len(REST) * 4), st.lists(texts, min_size=6, max_size=6), queries, kinds, bodies
)
authorizations = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=30).map(lambda text: f"Bearer {text}".encode("utf-8", "replace")),
    st.binary(max_size=60).map(lambda data: b"Basic " + data),
    st.sampled_from(
        (
            *(b"Bearer", b"Bearer ", b"bearer a.b.c", b"Basic", b"Basic Og==", b"Digest x"),
            *(b"Bearer " + MARK.encode(), b"Basic " + MARK.encode(), b"Bearer " + b"x" * 20_000),
            b"Bearer " + token("eve", bytes(64)).encode(),
        )
    ),
)
originals = st.one_of(st.none(), st.binary(max_size=20), st.just(ROOT.encode()))


async def asked(
    app: ASGIApp,
    method: str,
    raw_path: str,
    headers: list[tuple[bytes, bytes]],
    *,
    query: str = "",
    body: bytes = b"",
    certificate: Any = None,
) -> Answer:
    """As the server hands a request on."""
    sent: list[Message] = []
    over = asyncio.Event()

    async def receive() -> Message:
        if over.is_set():
            return {"type": "http.disconnect"}
        over.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"b1:8080"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    if certificate is not None:
        scope[CERTIFICATE_KEY] = certificate
    await app(scope, receive, send)
    assert sent[0]["type"] == "http.response.start"
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def filled(path: str, parameters: list[str]) -> str:
    pieces = iter(parameters)
    return "/".join(
        quote(next(pieces), safe="", errors="replace") if part.startswith("{") else part
        for part in path.split("/")
    )


def run(test: Any, **more: object) -> list[Any]:
    """On a node; returns what it has logged."""
    with tempfile.TemporaryDirectory() as folder, capture_logs() as logged:
        said = {"authorizationEnabled": True, "superuserRoles": ROOT, "logLevel": "debug"}
        said |= {"authenticateMetricsEndpoint": True, **more}

        async def whole() -> None:
            async with secured_node(**tokens_alone(Path(folder), **said)) as node:
                await test(node)

        steady.run(whole())
    return list(logged)


@settings(max_examples=3)  # each starts a node
@given(st.lists(requests, min_size=1, max_size=60), st.sampled_from(("", "ada", "boss", ROOT)))
def test_no_request_fails_or_is_answered_without_a_right(
    many: list[tuple[int, list[str], dict[str, str], bytes, bytes]], role: str
) -> None:
    async def test(node: SecuredNode) -> None:
        first = node.node
        about = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        assert (await node.ask("PUT", "/admin/v2/tenants/acme", bearer(ROOT), about)).is_success
        app = create_app(first.operations, first.settings, first.metrics, node.security)
        before = dict(first.view.entities)
        for number, parameters, query, kind, body in many:
            request = ROUTES[number % len(ROUTES)]
            method, path = request.split(" ")
            headers = [(b"content-type", kind)] if kind else []
            if role:
                headers.append((b"authorization", bearer(role).encode()))
            raw_path = filled(path, parameters)
            words = "&".join(f"{name}={quote(text)}" for name, text in query.items())
            status, _told = await asked(app, method, raw_path, headers, query=words, body=body)
            rule = REST[request]
            assert status != 500, (request, parameters, _told)
            if role == ROOT or rule.need.right is Right.PUBLIC:
                continue
            if status < 400:
                assert role
                is_mine = role == "boss" and rule.level is not ResourceLevel.CLUSTER
                assert is_mine or rule.need.right is Right.ANYONE or "//" in raw_path, request
            if not role:
                assert status in (401, 404, 405), (request, raw_path)
        if role in ("", "ada"):
            changed = {key for key, entity in first.view.entities.items() if key not in before}
            assert not {key for key in changed if not key.startswith(("session", "bundle"))}

    logged = run(test)
    assert not [line for line in logged if line["event"] in ("http.request_failed", "node.fault")]


@settings(max_examples=3)
@given(st.lists(st.tuples(authorizations, originals, st.booleans()), min_size=1, max_size=24))
def test_whatever_is_shown_lets_nobody_in_and_is_written_nowhere(
    many: list[tuple[bytes, bytes | None, bool]],
) -> None:
    async def test(node: SecuredNode) -> None:
        first = node.node
        app = create_app(first.operations, first.settings, first.metrics, node.security)
        for shown, original, is_twice in many:
            headers = [(b"authorization", shown)] * (1 + is_twice)
            if original is not None:
                headers.append((b"x-original-principal", original))
            for path in ("/admin/v2/brokers", f"/lookup/v2/topic/persistent/{HOME}/orders"):
                status, told = await asked(app, "GET", path, headers)
                assert status in (401, 403), (shown, original)
                assert MARK.encode() not in told
            status, _told = await asked(app, "GET", "/livez", [])
            assert status == 200

    logged = run(test, authenticationProviders="token")
    assert MARK not in str(logged)
    assert token("eve", bytes(64)).split(".")[2] not in str(logged)


names = st.lists(
    st.lists(
        st.tuples(st.sampled_from(("commonName", "organizationName", "x")), st.text(max_size=300)),
        max_size=3,
    ).map(tuple),
    max_size=3,
).map(tuple)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "subject": names,
            "issuer": names,
            "subjectAltName": st.lists(
                st.tuples(st.sampled_from(("DNS", "URI")), st.text(max_size=20)), max_size=2
            ),
            "notAfter": st.just("Jan  1 00:00:00 2035 GMT"),
        },
    )
)
def test_of_no_certificate_comes_more_than_the_one_name_it_is_for(
    certificate: dict[str, Any],
) -> None:
    provider = CertificateProvider()
    try:
        found = asyncio.run(provider.verify(Credentials("tls", b"", certificate)))
    except CredentialsError:
        return
    said = [value for part in certificate["subject"] for key, value in part if key == "commonName"]
    assert [found.role] == said
    assert is_role(found.role)
