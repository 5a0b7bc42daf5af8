"""Look-ups: the route, and the short way that nearly all of them take.

FastAPI would spend several times longer on the request than the answer takes (docs/decisions has
the figures). `LookupFirst` stands in front of the application and gives the answers itself; what is
malformed goes on to the route, which says why. Both ways make their bytes in `_Answers`, and a test
holds that they answer alike.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Path, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.errors import OperationError
from anabranch.broker.http.errors import answer, problems
from anabranch.broker.http.guard import Guard
from anabranch.broker.http.models import Authoritative, BundleRange, LookupData
from anabranch.broker.http.staleness import STALE_HEADER, Marked
from anabranch.broker.lookups import Located
from anabranch.broker.operations import Operations
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace, Topic
from anabranch.core.ring import parse_range, topic_hash

LOOKUP_PREFIX: Final = "/lookup/v2/topic/"
_BUNDLE_SUFFIX: Final = "/bundle"
_ANSWERS_MAX: Final = 1024

_Headers = list[tuple[bytes, bytes]]


class _Answers:
    """Encoded answers by what they say; brokers are few, so nearly all are found here."""

    def __init__(self) -> None:
        self._known: dict[Located, tuple[_Headers, bytes]] = {}

    def of(self, located: Located) -> tuple[_Headers, bytes]:
        """Headers and body that say where the owner is."""
        found = self._known.get(located)
        if found is None:
            if len(self._known) >= _ANSWERS_MAX:
                self._known.clear()
            found = self._known[located] = self._encode(located)
        return found

    def _encode(self, located: Located) -> tuple[_Headers, bytes]:
        # Of an owner that serves no binary protocol, the HTTP address stands for it.
        service_url = located.service_url or located.web_url
        body = msgspec.json.encode(
            {
                "brokerUrl": service_url,
                "brokerUrlTls": None,
                "httpUrl": located.web_url,
                "httpUrlTls": None,
                "nativeUrl": service_url,
            }
        )
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if located.stale:
            headers.append((STALE_HEADER.lower().encode(), b"true"))
        return headers, body


_answers = _Answers()


def _parse(domain: str, tenant: str, namespace: str, topic: str) -> tuple[Topic, Namespace]:
    home = names.namespace(tenant, namespace)
    return names.topic(home, topic, domain), home


class LookupFirst:
    """ASGI: answers look-ups, also those that have to wait; all else goes to `app`."""

    def __init__(self, app: ASGIApp, operations: Operations) -> None:
        self._app = app
        self._operations = operations
        self._wait = Guard(self._answer_when_known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(LOOKUP_PREFIX):
            await self._app(scope, receive, send)
            return
        asked = self._asked(scope)
        if asked is None:
            await self._app(scope, receive, send)
            return
        located = self._operations.locate_cached(*asked)
        if located is None:
            await self._wait(scope, receive, send)
        else:
            await _send(located, send)

    async def _answer_when_known(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._asked(scope)
        if asked is None:
            raise ValueError(f"not a look-up: {scope['path']}")
        try:
            located = await self._operations.lookup(*asked)
        except OperationError as error:
            await answer(error)(scope, receive, send)
        else:
            await _send(located, send)

    @staticmethod
    def _asked(scope: Scope) -> tuple[Topic, Namespace] | None:
        parts = scope["path"][len(LOOKUP_PREFIX) :].split("/", 3)
        if scope["method"] != "GET" or len(parts) != 4 or parts[3].endswith(_BUNDLE_SUFFIX):
            return None
        try:
            return _parse(*parts)
        except InvalidInputError:
            return None  # the route says why


async def _send(located: Located, send: Send) -> None:
    headers, body = _answers.of(located)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def router(operations: Operations) -> APIRouter:
    """The look-up routes."""
    routes = APIRouter(prefix="/lookup/v2/topic", tags=["look-up"])
    path = "/{domain}/{tenant}/{namespace}/{topic:path}"

    # Before the look-up itself, whose path would swallow it.
    @routes.get(path + _BUNDLE_SUFFIX, dependencies=[Marked], responses=problems(404, 412))
    async def get_bundle(
        domain: _Domain, tenant: str, namespace: str, topic: _LocalName
    ) -> BundleRange:
        """The range of the bundle that the topic's name falls into."""
        name, home = _parse(domain, tenant, namespace, topic)
        position = topic_hash(name)
        ranges = (part for part, _ in operations.bundles(home))
        return BundleRange(bundle=next(part for part in ranges if position in parse_range(part)))

    @routes.get(path, response_model=LookupData, responses=problems(404, 412, 503, 504))
    async def lookup_topic(
        domain: _Domain,
        tenant: str,
        namespace: str,
        topic: _LocalName,
        authoritative: Authoritative = False,
    ) -> Response:
        """Where the topic's owner is. Assigns its bundle if nobody has it; waits while it moves.

        The header `X-Anabranch-Stale: true` marks the answer of a node that is cut off from the
        log: the owner may have changed since.
        """
        name, home = _parse(domain, tenant, namespace, topic)
        headers, body = _answers.of(await operations.lookup(name, home))
        return Response(body, headers={key.decode(): value.decode() for key, value in headers})

    return routes


_Domain = Annotated[str, Path(description="persistent, non-persistent or topic.")]
_LocalName = Annotated[str, Path(description="Local name of the topic, URL-encoded.")]
