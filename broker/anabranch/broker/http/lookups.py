"""Look-ups by HTTP: the owner of a topic's bundle, and the bundle's range.

Clients look up owners and layouts all the time. `ReadyReads` answers such a read before the routes
if the answer is known and the asker may have it. The routes answer all others, above all refusals.
"""

from __future__ import annotations

import functools
from typing import Annotated, Final

import msgspec
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.admin import LookupData
from anabranch.broker.bundles.lookups import Located
from anabranch.broker.http.guards.authentication import principal_of
from anabranch.broker.http.routes.topic_stats import layout_of
from anabranch.broker.http.routing import STALE_HEADER, RouteGroup
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.errors import InvalidInputError
from anabranch.core.ring import parse_range, topic_hash
from anabranch.core.security.actions import Need
from anabranch.core.security.resources import topic_resource
from anabranch.core.security.table import REST

LOOKUP_PREFIX: Final = "/lookup/v2/topic/"
_LAYOUT_PREFIX: Final = "/admin/v2/scalable/"
_LOOKUP: Final = REST[f"GET {LOOKUP_PREFIX}{{domain}}/{{tenant}}/{{namespace}}/{{topic}}"].need
_LAYOUT: Final = REST[f"GET {_LAYOUT_PREFIX}{{tenant}}/{{namespace}}/{{topic}}"].need
_BUNDLE: Final = "/bundle"
_LOOKUP_PARTS: Final = 4  # domain, tenant, namespace, and the rest is the topic's local name
_LAYOUT_PARTS: Final = 3
_LOCATED_MAX: Final = 1024
_LAYOUTS_MAX: Final = 256  # kept, each of at most so many bytes
_LAYOUT_BYTES_MAX: Final = 65_536
_STALE: Final = (STALE_HEADER.lower().encode(), b"true")

_Domain = Annotated[str, msgspec.Meta(description="persistent, non-persistent or topic.")]


def _data(located: Located) -> LookupData:
    # The HTTP address stands in for an owner that serves no binary protocol.
    service_url = located.service_url or located.web_url or None
    return LookupData(
        broker_url=service_url,
        broker_url_tls=located.service_url_tls or located.web_url_tls or None,
        http_url=located.web_url or None,
        http_url_tls=located.web_url_tls or None,
        native_url=service_url,
    )


class _Ready:
    """An answer that is encoded."""

    __slots__ = ("_body", "_start")

    def __init__(self, body: bytes, *, is_stale: bool) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if is_stale:
            headers.append(_STALE)
        self._start = {"type": "http.response.start", "status": 200, "headers": headers}
        self._body = {"type": "http.response.body", "body": body}

    async def send(self, send: Send) -> None:
        await send(self._start)
        await send(self._body)


@functools.lru_cache(_LOCATED_MAX)  # brokers are few, so nearly all are found here
def _owner(located: Located) -> _Ready:
    return _Ready(msgspec.json.encode(_data(located)), is_stale=located.stale)


class ReadyReads:
    """ASGI middleware: answers look-ups and reads of layouts that need no wait.

    `guard`: None if requests need no right.
    """

    def __init__(
        self, app: ASGIApp, operations: Operations, guard: AccessGuard | None = None
    ) -> None:
        self._app = app
        self._lookups = operations.lookups
        self._topics = operations.topics
        self._runtime = operations.runtime
        self._guard = guard
        # With each answer its topic and staleness: many clients read a layout that has changed.
        self._layouts: dict[str, tuple[ScalableTopic, bool, _Ready]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ready: _Ready | None = None
        if scope["method"] == "GET":
            path: str = scope["path"]
            if path.startswith(LOOKUP_PREFIX):
                ready = self._lookup(scope, path)
            elif path.startswith(_LAYOUT_PREFIX):
                ready = self._layout(scope, path[len(_LAYOUT_PREFIX) :])
        if ready is None:
            await self._app(scope, receive, send)
        else:
            await ready.send(send)

    def _lookup(self, scope: Scope, path: str) -> _Ready | None:
        parts = path[len(LOOKUP_PREFIX) :].split("/", _LOOKUP_PARTS - 1)
        if len(parts) != _LOOKUP_PARTS or parts[-1].endswith(_BUNDLE):
            return None
        domain, tenant, namespace, local = parts
        try:
            home = names.namespace(tenant, namespace)
            topic = names.topic(home, local, domain)
        except InvalidInputError:
            return None
        if not self._may(scope, _LOOKUP, f"{home}/{local}"):
            return None
        located = self._lookups.locate_cached(topic, home)
        return None if located is None else _owner(located)

    def _layout(self, scope: Scope, name: str) -> _Ready | None:
        parts = name.split("/")
        if len(parts) != _LAYOUT_PARTS or not all(parts) or not self._may(scope, _LAYOUT, name):
            return None
        topic = self._topics.open_topic(name)
        if topic is None:
            return None
        is_stale = not self._runtime.has_lease
        kept = self._layouts.get(name)
        if kept is not None and kept[0] is topic and kept[1] is is_stale:
            return kept[2]
        body = msgspec.json.encode(layout_of(topic))
        ready = _Ready(body, is_stale=is_stale)
        if len(body) <= _LAYOUT_BYTES_MAX:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            self._layouts[name] = topic, is_stale, ready
        return ready

    def _may(self, scope: Scope, need: Need, topic: str) -> bool:
        """Returns whether the asker is known to have the right; nothing is looked for before."""
        if self._guard is None:
            return True
        principal = principal_of(scope)
        return bool(principal.role) and self._guard.may(principal, need, topic_resource(topic))


def routes(operations: Operations) -> RouteGroup:
    """Both look-ups."""
    found = RouteGroup("look-up", LOOKUP_PREFIX)
    path = "{domain}/{tenant}/{namespace}/{topic:text}"

    # Before the look-up itself, whose path would swallow it.
    @found.get(path + _BUNDLE)
    async def get_bundle(
        domain: _Domain, tenant: str, namespace: str, topic: str
    ) -> PlainTextResponse:
        """The range of the bundle that the topic's name falls into, bare, as Pulsar's client reads
        it.
        """
        home = names.namespace(tenant, namespace)
        position = topic_hash(names.topic(home, topic, domain))
        ranges = (part for part, _ in operations.bundles(home))
        return PlainTextResponse(next(part for part in ranges if position in parse_range(part)))

    @found.get(path)
    async def lookup_topic(domain: _Domain, tenant: str, namespace: str, topic: str) -> LookupData:
        """The addresses of the topic's owner. Assigns a free bundle; waits while the bundle moves.

        The header `X-Anabranch-Stale: true` marks the answer of a node that is cut off from the
        log: the owner may have changed since.
        """
        home = names.namespace(tenant, namespace)
        return _data(await operations.lookups.find(names.topic(home, topic, domain), home))

    return found
