"""The two reads that clients make all the time: look-ups, and layouts of topics.

FastAPI would spend several times longer on such a request than the answer takes (docs/decisions has
the figures). So `ReadMiddleware` stands in front of the application and answers them, refusals
included; the application only describes them, and has the routes of everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple, NoReturn

import msgspec
from fastapi import APIRouter, Path
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import OperationError
from anabranch.broker.http.errors import answer, problems
from anabranch.broker.http.guards.requests import failed
from anabranch.broker.http.models.cluster import Authoritative, LookupData
from anabranch.broker.http.models.topics import layout_body
from anabranch.broker.http.routes.topics import PREFIX
from anabranch.broker.http.routing import STALE_HEADER, DecidingRoute, Marked
from anabranch.broker.http.senders import host_of, principal_of
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace, Topic
from anabranch.core.ring import parse_range, topic_hash
from anabranch.core.security.resources import ResourceName, topic_resource
from anabranch.core.security.table import REST

LOOKUP_PREFIX: Final = "/lookup/v2/topic/"
_LAYOUT_PREFIX: Final = f"{PREFIX}/"
_LOOKUP: Final = "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"  # in the table
_LAYOUT: Final = f"GET {PREFIX}/{{tenant}}/{{namespace}}/{{topic}}"
_BUNDLE_SUFFIX: Final = "/bundle"
_LOOKUP_PARTS: Final = 4  # domain, tenant, namespace, and the rest is the topic's local name
_LAYOUT_PARTS: Final = 3
_LOCATED_MAX: Final = 1024
_BODIES_BYTES_MAX: Final = 32 << 20  # of all layouts that are kept
_STALE: Final = (STALE_HEADER.lower().encode(), b"true")

_Headers = list[tuple[bytes, bytes]]


class _Answer(NamedTuple):
    headers: _Headers
    body: bytes


_Find = Callable[[], Awaitable[_Answer]]


class _Locations:
    """Encoded answers by their content; brokers are few, so nearly all are found here."""

    def __init__(self) -> None:
        self._known: dict[Located, _Answer] = {}

    def of(self, located: Located) -> _Answer:
        """Headers and body of the answer that says where the owner is."""
        found = self._known.get(located)
        if found is None:
            if len(self._known) >= _LOCATED_MAX:
                self._known.clear()
            # The HTTP address stands in for an owner that serves no binary protocol.
            service_url = located.service_url or located.web_url or None
            told = {
                "brokerUrl": service_url,
                "brokerUrlTls": located.service_url_tls or located.web_url_tls or None,
                "httpUrl": located.web_url or None,
                "httpUrlTls": located.web_url_tls or None,
                "nativeUrl": service_url,
            }
            headers, body = _json(msgspec.json.encode(told))
            if located.stale:
                headers = [*headers, _STALE]
            found = self._known[located] = _Answer(headers, body)
        return found


class _Layouts:
    """Encoded layouts by topic, as long as the topic is the same object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ScalableTopic, _Answer]] = {}
        self._bytes = 0

    def of(self, name: str, topic: ScalableTopic) -> _Answer:
        """Headers and body of the topic's layout."""
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1]
        made = _json(msgspec.json.encode(layout_body(topic)))
        if known is not None:
            self._forget(name)
        size = len(made.body)
        while self._known and self._bytes + size > _BODIES_BYTES_MAX:
            self._forget(next(iter(self._known)))
        self._known[name] = (topic, made)
        self._bytes += size
        return made

    def _forget(self, name: str) -> None:
        self._bytes -= len(self._known.pop(name)[1].body)


class ReadMiddleware:
    """ASGI: answers these reads, also those that have to wait; all else goes to `app`."""

    def __init__(
        self, app: ASGIApp, operations: Operations, guard: AccessGuard | None = None
    ) -> None:
        self._app = app
        self._guard = guard
        self._lookups = operations.lookups
        self._topics = operations.topics
        self._decided = operations.decided
        self._locations = _Locations()
        self._layouts = _Layouts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            path: str = scope["path"]
            known: _Answer | _Find | None = None
            if path.startswith(LOOKUP_PREFIX):
                parts = _lookup_parts(path)
                if parts is not None:
                    on = topic_resource("/".join(parts[1:]))
                    known = self._judged(scope, _LOOKUP, on, partial(self._lookup, parts))
            elif path.startswith(_LAYOUT_PREFIX):
                name = path[len(_LAYOUT_PREFIX) :]
                parts = name.split("/")
                if len(parts) == _LAYOUT_PARTS and all(parts):
                    on = topic_resource(name)
                    known = self._judged(scope, _LAYOUT, on, partial(self._layout, name, parts))
            if isinstance(known, tuple):
                await _send(known, send)
                return
            if known is not None:
                await self._answer_when_known(known, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _judged(
        self,
        scope: Scope,
        request: str,
        on: ResourceName,
        known: Callable[[], _Answer | _Find],
    ) -> _Answer | _Find:
        """Returns the known answer if the principal may have it.

        Otherwise it returns a function that refuses, or finds that the principal may now. It looks
        for nothing before the right is known, because the time that a look takes would tell if
        there is something.
        """
        guard = self._guard
        if guard is None:
            return known()
        principal, need = principal_of(scope), REST[request].need
        if principal.role and guard.may(principal, need, on):
            found = known()
            if isinstance(found, tuple):
                return found

        async def ask() -> _Answer:
            guard.check(principal, need, on)
            found = known()
            if isinstance(found, tuple):
                return found
            waited_for = await found()
            guard.check(principal, need, on)  # the right may be gone meanwhile
            return waited_for

        async def decide() -> _Answer:
            try:
                guard.must_be_somebody(principal, need)
                return await self._decided(ask)
            except OperationError as error:
                guard.note(error, request, host_of(scope))
                raise

        return decide

    def _lookup(self, parts: Sequence[str]) -> _Answer | _Find:
        """The answer if it is known at once, else what finds it."""
        try:
            topic, home = _asked_topic(parts)
        except InvalidInputError as error:
            return partial(_refuse, str(error))
        located = self._lookups.locate_cached(topic, home)
        if located is None:
            return partial(self._decided, partial(self._find_owner, topic, home))
        return self._locations.of(located)

    async def _find_owner(self, topic: Topic, home: Namespace) -> _Answer:
        return self._locations.of(await self._lookups.find(topic, home))

    def _layout(self, name: str, parts: Sequence[str]) -> _Answer | _Find:
        """Answers for a layout as `_lookup` does for an owner."""
        topic = self._topics.open_topic(name)
        if topic is None:
            return partial(self._decided, partial(self._find_layout, parts))
        return self._told(name, topic)

    async def _find_layout(self, parts: Sequence[str]) -> _Answer:
        name = names.scalable_topic(*parts)
        return self._told(name, self._topics.topic(name))

    def _told(self, name: str, topic: ScalableTopic) -> _Answer:
        known = self._layouts.of(name, topic)
        return known._replace(headers=[*known.headers, _STALE]) if self._topics.is_stale else known

    async def _answer_when_known(
        self, find: _Find, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            found = await find()
        except (OperationError, InvalidInputError) as error:
            refused = answer(error)
            if self._topics.is_stale:
                refused.headers[STALE_HEADER] = "true"
            await refused(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - its answer says where its cause is
            await failed(scope, error)(scope, receive, send)
        else:
            await _send(found, send)


def _lookup_parts(path: str) -> Sequence[str] | None:
    """Domain, tenant, namespace and local name; None if it is no look-up's path."""
    parts = path[len(LOOKUP_PREFIX) :].split("/", _LOOKUP_PARTS - 1)
    if len(parts) != _LOOKUP_PARTS or not all(parts[:-1]) or parts[-1].endswith(_BUNDLE_SUFFIX):
        return None
    return parts


def _asked_topic(parts: Sequence[str]) -> tuple[Topic, Namespace]:
    """The topic and its namespace. Raises InvalidInputError."""
    domain, tenant, namespace, local = parts
    home = names.namespace(tenant, namespace)
    return names.topic(home, local, domain), home


async def _refuse(reason: str) -> NoReturn:
    raise InvalidInputError(reason)


def _json(body: bytes) -> _Answer:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return _Answer(headers, body)


async def _send(known: _Answer, send: Send) -> None:
    headers, body = known
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_Domain = Annotated[str, Path(description="persistent, non-persistent or topic.")]
_LocalName = Annotated[str, Path(description="Local name of the topic, URL-encoded.")]


def router(operations: Operations) -> APIRouter:
    """The description of look-ups, and the look-up of a bundle."""
    routes = APIRouter(route_class=DecidingRoute)
    path = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic:path}"

    # Before the look-up itself, whose path would swallow it.
    @routes.get(
        path + _BUNDLE_SUFFIX,
        dependencies=[Marked],
        response_class=PlainTextResponse,
        responses=problems(404, 412),
        tags=["look-up"],
    )
    async def get_bundle(domain: _Domain, tenant: str, namespace: str, topic: _LocalName) -> str:
        """The range of the bundle that the topic's name falls into, bare, as Pulsar's client reads
        it.
        """
        home = names.namespace(tenant, namespace)
        position = topic_hash(names.topic(home, topic, domain))
        ranges = (part for part, _ in operations.bundles(home))
        return next(part for part in ranges if position in parse_range(part))

    @routes.get(path, responses=problems(404, 412, 503, 504), tags=["look-up"])
    async def lookup_topic(
        domain: _Domain,
        tenant: str,
        namespace: str,
        topic: _LocalName,
        authoritative: Authoritative = False,
    ) -> LookupData:
        """The addresses of the topic's owner. Assigns a free bundle; waits while the bundle moves.

        The header `X-Anabranch-Stale: true` marks the answer of a node that is cut off from the
        log: the owner may have changed since.
        """
        raise NotImplementedError  # `ReadMiddleware` answers it

    return routes
