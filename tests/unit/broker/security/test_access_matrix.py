"""Everything that can be asked of a node, by everybody who may ask: what comes of it.

The oracle below does not read the table. It says of a request what its path or its command says to
people, so that a wrong row of the table shows here. Whoever asks is a real role with a real token,
by a real connection or the real application, directly and through a proxy. Who may is answered by
the state, in which nothing is there: so nothing that is asked changes what comes next. Nothing that
was refused takes memory afterwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.http.app import create_app
from anabranch.broker.security.node import NodeSecurity
from anabranch.core.entities.permission import Permission, permission_key
from anabranch.core.entities.tenant import Tenant
from anabranch.core.security.table import REST, WIRE
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.server.server import WireServer
from support.binary import subscribe
from support.circles import nothing_left_in_a_circle
from support.http import PATIENT, PLACES
from support.memory_cluster import MemoryNode, MemoryView, memory_cluster
from support.secured import ROOT, tokens_alone
from support.tokens import token
from support.wire import HOST, Raw, error_of, raw

HOME: Final = "acme/shop"
TOPIC: Final = f"{HOME}/orders"
WORDS: Final = ("consume", "produce", "scale", "view")
GATE: Final = "gate"  # a proxy that is a superuser
LESSER_GATE: Final = "lesser-gate"  # a proxy that may no more than was granted to it
SPEAKERS: Final = ("", GATE, LESSER_GATE)
GRANTED: Final = {
    (HOME, LESSER_GATE): "view",
    **{(HOME, f"home-{word}"): word for word in WORDS},
    **{(TOPIC, f"topic-{word}"): word for word in WORDS},
    ("acme/store", "elsewhere"): "consume",
    ("acmes/shop/orders", "neighbour"): "consume",
}
ROLES: Final = (
    *("", ROOT, "boss", "foreign", "stranger", GATE),  # LESSER_GATE is among those to follow
    *(role for _, role in GRANTED),
)
# Those for whom a proxy asks: one of each kind suffices there.
SPOKEN_FOR: Final = (
    *("", ROOT, "boss", "stranger", GATE, LESSER_GATE),
    *("home-consume", "topic-view"),
)
VALUES: Final = PLACES | {
    "tenant": "acme",
    "namespace": "shop",
    "topic": "orders",
    "setting": "logLevel",
    "value": "info",
}
ALL: Final = frozenset(WORDS)

# --- the oracle -----------------------------------------------------------------------------------


def demanded(request: str) -> tuple[str, frozenset[str]]:
    """What a request is about (`all`, `cluster`, `tenant`, `namespace` or `topic`), and the actions
    of which one suffices; or one of `anyone`, `admin`, `super`.
    """
    method, path = request.split(" ")
    public = ("/livez", "/readyz", "/status.html", "/admin/v2/brokers/ready", "/docs")
    if path in (*public, "/openapi.json"):
        return "all", frozenset()
    if re.fullmatch(
        r"/admin/v2/(brokers(/leaderBroker|/addresses|/status|/version|/{cluster})?"
        r"|clusters(/{cluster})?)",
        path,
    ):
        return "cluster", frozenset({"anyone"})
    if path.startswith("/lookup/"):
        return "topic", ALL
    if path.startswith("/admin/v2/tenants/"):
        return "tenant", frozenset({"admin" if method == "GET" else "super"})
    if path.startswith("/admin/v2/namespaces/{tenant}"):
        return _of_namespace(method, path)
    if path.startswith("/admin/v2/segments/"):
        return "topic", frozenset({"super"})
    if path.startswith("/admin/v2/scalable/") and "{topic}" not in path:
        return "namespace", ALL
    if path.startswith("/admin/v2/scalable/"):
        return "topic", _of_topic(method, path)
    if path == "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/unload":
        return "topic", frozenset({"admin"})
    return "cluster", frozenset({"super"})


def _of_namespace(method: str, path: str) -> tuple[str, frozenset[str]]:
    if "{namespace}" not in path:
        return "tenant", frozenset({"admin"})
    if re.search(r"/(unload|split)$", path) or (method != "GET" and "/max" in path):
        return "namespace", frozenset({"super"})
    if "Backlog" in path or "unsubscribe" in path:
        return "namespace", frozenset({"consume"})
    if method != "GET" or path.endswith("/permissions"):
        return "namespace", frozenset({"admin"})
    return "namespace", ALL


def _of_topic(method: str, path: str) -> frozenset[str]:
    if path.endswith(("/permissions", "/adopt")):
        return frozenset({"admin"})
    if method == "GET":
        return ALL
    if "/subscriptions/" in path:
        return frozenset({"consume"})
    if re.search(r"/(split|merge|rebucket)/|/(prepare|autoScalePolicy)$", path):
        return frozenset({"scale"})
    return frozenset({"admin"})


def expected(about: str, suffices: frozenset[str], role: str, speaker: str = "") -> str:
    """`yes`, `who` must say so first, `no`, or `hidden`."""
    if about == "all" and not (role in (GATE, LESSER_GATE) and speaker):
        return "yes"
    if not role:
        return "who"
    if role in (GATE, LESSER_GATE):  # a proxy speaks for no proxy, and for itself it has no right
        return "yes" if suffices == {"anyone"} and not speaker else "no"
    found = allowed(about, suffices, role)
    if found != "yes" or not speaker or suffices == {"anyone"}:
        return found
    return "yes" if allowed(about, suffices, speaker) == "yes" else "no"


def allowed(about: str, suffices: frozenset[str], role: str) -> str:
    """What a role comes to by its own rights."""
    if role in (ROOT, GATE) or suffices == {"anyone"}:
        return "yes"
    if about == "cluster":
        return "no"
    if role == "boss":
        return "no" if suffices == {"super"} else "yes"
    scopes = {"tenant": (), "namespace": (HOME,), "topic": (HOME, TOPIC)}[about]
    held = {GRANTED[scope, role] for scope in scopes if (scope, role) in GRANTED}
    if not held:
        return "hidden"
    return "yes" if held & suffices else "no"


# --- the node -------------------------------------------------------------------------------------


def granted() -> MemoryView:
    """What a log would keep of these roles."""
    view = MemoryView()
    tenants = {"acme": "boss", "acmes": "foreign"}
    view.apply(
        [(f"tenant:{name}", Tenant(1, (who,), (), 0, "p")) for name, who in tenants.items()]
        + [
            (permission_key(scope, role), Permission(1, (word,), 0, "p"))
            for (scope, role), word in GRANTED.items()
        ]
    )
    return view


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[tuple[MemoryNode, NodeSecurity]]:
    settings = tokens_alone(
        folder,
        authorizationEnabled=True,
        authenticateMetricsEndpoint=True,
        superuserRoles=f"{ROOT},{GATE}",
        proxyRoles=f"{GATE},{LESSER_GATE}",
    )
    async with memory_cluster(1, **{**PATIENT, **settings}) as cluster:
        (node,) = cluster.nodes
        kept = granted()
        yield node, NodeSecurity(node.settings, lambda: kept)


def shown(role: str, speaker: str) -> dict[str, str]:
    if not role:
        return {}
    if speaker:
        return {"Authorization": f"Bearer {token(speaker)}", "X-Original-Principal": role}
    return {"Authorization": f"Bearer {token(role)}"}


def judged(answer: httpx.Response) -> str:
    assert answer.status_code != 500, answer.text
    if answer.status_code == 401:
        return "who"
    if answer.status_code == 403:
        return "no"
    return "hidden" if answer.status_code == 404 and "not for " in answer.text else "yes"


async def test_every_route_is_served_to_whom_it_is_for(tmp_path: Path) -> None:
    async with asked(tmp_path) as (node, security):
        app = create_app(node.operations, node.settings, node.metrics, security)
        transport = httpx.ASGITransport(app, client=(HOST, 1))
        shows = {
            (role, speaker): shown(role, speaker)
            for speaker in SPEAKERS
            for role in (SPOKEN_FOR if speaker else ROLES)
        }
        found: Counter[str] = Counter()
        async with httpx.AsyncClient(transport=transport, base_url="http://b1:8080") as http:
            with nothing_left_in_a_circle():
                for request in sorted(REST):
                    method, path = request.split(" ")
                    place = re.sub(r"{(\w+)}", lambda name: VALUES[name[1]], path)
                    about, suffices = demanded(request)
                    for (role, speaker), headers in shows.items():
                        wanted = expected(about, suffices, role, speaker)
                        answer = await http.request(method, place, headers=headers)
                        assert judged(answer) == wanted, (request, role, speaker, answer.text)
                        found[wanted] += 1
        assert min(found[each] for each in ("yes", "who", "no", "hidden")) > 100


# --- the binary port ------------------------------------------------------------------------------

ANYONE: Final = ("cluster", frozenset({"anyone"}))
SEES_HOME: Final = ("namespace", ALL)
SEES_TOPIC: Final = ("topic", ALL)
COMMANDS: Final[dict[str, tuple[Any, tuple[str, frozenset[str]]]]] = {
    "LOOKUP": (pb.CommandLookupTopic(topic=f"persistent://{TOPIC}", request_id=1), SEES_TOPIC),
    "GET_TOPICS_OF_NAMESPACE": (
        pb.CommandGetTopicsOfNamespace(namespace=HOME, request_id=1),
        SEES_HOME,
    ),
    "WATCH_TOPIC_LIST": (
        pb.CommandWatchTopicList(namespace=HOME, topics_pattern=".*", request_id=1, watcher_id=1),
        SEES_HOME,
    ),
    "WATCH_TOPIC_LIST_CLOSE": (pb.CommandWatchTopicListClose(request_id=1, watcher_id=9), ANYONE),
    "SCALABLE_TOPIC_LOOKUP": (
        pb.CommandScalableTopicLookup(topic=f"topic://{TOPIC}", session_id=1),
        SEES_TOPIC,
    ),
    "SCALABLE_TOPIC_LINEAGE": (
        pb.CommandScalableTopicLineage(request_id=1, topic=f"topic://{TOPIC}", segment_id=0),
        SEES_TOPIC,
    ),
    "WATCH_SCALABLE_TOPICS": (pb.CommandWatchScalableTopics(namespace=HOME, watch_id=1), SEES_HOME),
    "SCALABLE_TOPIC_SUBSCRIBE": (subscribe(TOPIC), ("topic", frozenset({"consume"}))),
    "SCALABLE_TOPIC_UNSUBSCRIBE": (
        pb.CommandScalableTopicUnsubscribe(request_id=1, consumer_id=9),
        ANYONE,
    ),
    "SCALABLE_CONSUMER_REPORT": (
        pb.CommandScalableConsumerReport(request_id=1, consumer_id=9),
        ANYONE,
    ),
    "SCALABLE_TRAFFIC_REPORT": (
        pb.CommandScalableTrafficReport(
            request_id=1, topic=f"topic://{TOPIC}", incarnation=1, client_id=1, since_ms=1
        ),
        ("topic", frozenset({"consume", "produce"})),
    ),
}
SILENT: Final = {"SCALABLE_TOPIC_CLOSE", "WATCH_SCALABLE_TOPICS_CLOSE"}  # they have no answer


def test_every_command_is_tried() -> None:
    assert COMMANDS.keys() | SILENT == WIRE.keys()


async def hello(client: Raw, role: str, speaker: str) -> BaseCommand:
    said = pb.CommandConnect(client_version="anabranch", protocol_version=21)
    if role:
        said.auth_method_name = "token"
        said.auth_data = token(speaker or role).encode()
    if role and speaker:
        said.original_principal = role
    client.send(commands.envelope(said))
    return await client.told()


def told(answer: BaseCommand) -> str:
    error = error_of(answer)
    assert error != ServerError.UnknownError, answer
    if error == ServerError.TopicNotFound:
        return "hidden" if "not for " in str(answer) else "yes"
    return "no" if error == ServerError.AuthorizationError else "yes"


@pytest.mark.parametrize("speaker", SPEAKERS)
async def test_every_command_is_served_to_whom_it_is_for(speaker: str, tmp_path: Path) -> None:
    async with asked(tmp_path) as (node, security):
        routes = sessions(node.operations, node.settings, security.guard)
        server = WireServer(routes, "test", node.settings.wire_limits, security.admission)
        await server.start(HOST, 0)
        try:
            with nothing_left_in_a_circle():
                for role in SPOKEN_FOR if speaker else ROLES:
                    await _by_role(server.port, role, speaker)
        finally:
            await server.stop()


async def _by_role(port: int, role: str, speaker: str) -> None:
    async with raw(port) as client:
        answer = await hello(client, role, speaker)
        if not role or (speaker and role in (GATE, LESSER_GATE)):
            assert answer.error.error == ServerError.AuthenticationError
            assert await client.answer() is None
            return
        assert answer.type == BaseCommand.CONNECTED
    for name, (message, (about, suffices)) in COMMANDS.items():
        async with raw(port) as client:  # of its own: an answer may be followed by others
            await hello(client, role, speaker)
            client.send(commands.envelope(message))
            found = told(await client.told())
            assert found == expected(about, suffices, role, speaker), (name, role, speaker)
