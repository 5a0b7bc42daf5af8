"""A remembered token counts for the same words, and no longer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from anabranch.broker.http.guards.authentication import AuthenticationMiddleware, principal_of
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.settings import load_settings
from anabranch.core.security.principal import Principal
from support.memory_cluster import until
from support.secured import ROOT, bearer, secured_node, tokens_alone
from support.tokens import secret_file

ORIGINAL = "x-original-principal"


class Connection:
    """One to an application that says who asks."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._app = AuthenticationMiddleware(self._served, authenticator)
        self._asked = ""

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._asked = _name(principal_of(scope))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, *headers: tuple[str, str]) -> str | int:
        """Who asks, or the status of the refusal."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }
        await self._app(scope, receive, send)
        status: int = sent[0]["status"]
        return self._asked if status == 200 else status


def _name(who: Principal) -> str:
    return f"{who.proxied_by}>{who.role}" if who.proxied_by else who.role


def authorization(role: str) -> tuple[str, str]:
    return "authorization", bearer(role)


async def test_each_request_is_its_own_sender_s_whoever_sent_the_one_before(tmp_path: Path) -> None:
    settings = load_settings(None, {}, tokens_alone(tmp_path, proxyRoles="gate"))
    one = Connection(Authenticator(settings))
    ada, bob, gate = (authorization(role) for role in ("ada", "bob", "gate"))
    for_ada = (ORIGINAL, "ada")
    for headers, wanted in (
        ((ada,), "ada"),
        ((ada,), "ada"),
        ((bob,), "bob"),
        ((), ""),
        ((ada,), "ada"),
        ((ada, ada), 401),
        ((gate,), "gate"),
        ((gate, for_ada), "gate>ada"),
        ((gate, (ORIGINAL, "bob")), "gate>bob"),
        ((gate,), "gate"),
        ((ada, (ORIGINAL, "bob")), 403),
        ((ada,), "ada"),
        (((ada[0], ada[1] + "x"),), 401),
        (((ada[0], ada[1][:-1]),), 401),
        ((for_ada,), ""),
        ((ada,), "ada"),
    ):
        assert await one.ask(*headers) == wanted, headers


async def test_it_ends_with_what_was_shown_and_with_its_key(tmp_path: Path) -> None:
    given = tokens_alone(tmp_path, authenticationFilesCheckSeconds=0.1)
    now = [time.time()]
    authenticator = Authenticator(load_settings(None, {}, given), lambda: now[0])
    one, ada = Connection(authenticator), authorization("ada")
    assert await one.ask(ada) == "ada"
    now[0] += 3_590
    assert await one.ask(ada) == "ada"
    now[0] += 20
    assert await one.ask(ada) == 401
    now[0] -= 3_610
    assert await one.ask(ada) == "ada"
    await authenticator.start()
    try:
        (provider,) = authenticator.providers
        before = provider.generation
        secret_file(tmp_path, bytes(64))
        await until(lambda: provider.generation != before)
        assert await one.ask(ada) == 401
    finally:
        await authenticator.stop()


async def test_what_was_allowed_is_refused_without_its_grant_or_its_token(tmp_path: Path) -> None:
    """Though all that is remembered of a connection and its rights says otherwise."""

    more = {"authorizationEnabled": True, "superuserRoles": ROOT}

    async with secured_node(**tokens_alone(tmp_path, **more)) as node:
        grant = "/admin/v2/namespaces/public/default/permissions/ada"
        look_up = "/lookup/v2/topic/persistent/public/default/orders"
        shown, root, now = bearer("ada", seconds=600), bearer(ROOT), time.time()

        async def found() -> list[int]:
            return [(await node.ask("GET", look_up, shown)).status_code for _ in range(3)]

        assert await found() == [404] * 3
        for _turn in range(2):
            assert (await node.ask("POST", grant, root, ["view"])).status_code == 204
            assert await found() == [200] * 3
            assert (await node.ask("DELETE", grant, root)).status_code == 204
            assert await found() == [404] * 3
        assert (await node.ask("POST", grant, root, ["view"])).status_code == 204
        assert await found() == [200] * 3
        node.security.authenticator._now = lambda: now + 700
        assert await found() == [401] * 3
