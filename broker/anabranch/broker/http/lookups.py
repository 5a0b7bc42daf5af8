"""Look-ups by HTTP: the owner of a topic's bundle, and the bundle's range.

Clients look up all the time. So a node answers a look-up as it comes, without the application,
where it knows the asker, its right and the owner's address. The application answers all others,
above all refusals.
"""

from __future__ import annotations

import functools
from typing import Annotated, Final

import msgspec
from starlette.responses import PlainTextResponse
from starlette.types import Scope

from anabranch.admin import LookupData
from anabranch.broker.bundles.lookups import Located
from anabranch.broker.http.guards.authentication import known_at_once
from anabranch.broker.http.guards.connections import OfferedRequest, ReadyAnswer
from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.http.routing import STALE_HEADER, RouteGroup
from anabranch.broker.http.senders import TURN_KEY
from anabranch.broker.operations import Operations
from anabranch.broker.security.node import NodeSecurity
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.ring import parse_range, topic_hash
from anabranch.core.security.resources import topic_resource
from anabranch.core.security.table import REST

LOOKUP_PREFIX: Final = "/lookup/v2/topic/"
_LOOKUP: Final = f"GET {LOOKUP_PREFIX}{{domain}}/{{tenant}}/{{namespace}}/{{topic}}"
_NEED: Final = REST[_LOOKUP].need
_BUNDLE: Final = "/bundle"
_PARTS: Final = 4  # domain, tenant, namespace, and the rest is the topic's local name
_LOCATED_MAX: Final = 1024

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


@functools.lru_cache(_LOCATED_MAX)  # brokers are few, so nearly all are found here
def _ready(located: Located) -> ReadyAnswer:
    body = msgspec.json.encode(_data(located))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if located.stale:
        headers.append((STALE_HEADER.lower().encode(), b"true"))
    return ReadyAnswer(b"HTTP/1.1 200 OK", headers, body)


class ReadyLookups:
    """`AtOnce` of a node that lets no other site's pages read answers, which need headers for it.

    `security`: None if requests need no credentials.
    """

    def __init__(
        self, operations: Operations, site: OriginRules, security: NodeSecurity | None = None
    ) -> None:
        self._lookups = operations.lookups
        self._site = site
        self._security = security

    def __call__(self, request: OfferedRequest) -> bool:
        scope = request.scope
        path: str = scope["path"]
        if scope["method"] != "GET" or not path.startswith(LOOKUP_PREFIX):
            return False
        parts = path[len(LOOKUP_PREFIX) :].split("/", _PARTS - 1)
        if len(parts) != _PARTS or parts[-1].endswith(_BUNDLE):
            return False
        if self._site.refuses("GET", scope["headers"]) is not None:
            return False
        domain, tenant, namespace, local = parts
        try:
            home = names.namespace(tenant, namespace)
            topic = names.topic(home, local, domain)
        except InvalidInputError:
            return False
        if not self._may(scope, f"{home}/{local}"):
            return False
        located = self._lookups.locate_cached(topic, home)
        if located is None:
            return False
        request.answer(_ready(located))
        return True

    def _may(self, scope: Scope, topic: str) -> bool:
        """Returns whether the asker is known, may look the topic up, and has a turn just now."""
        if self._security is None:
            return True
        who = known_at_once(self._security.authenticator, scope)
        guard = self._security.guard
        if who is None or not who.role or not guard.may(who, _NEED, topic_resource(topic)):
            return False
        if not guard.has_turn(who):
            return False
        scope[TURN_KEY] = True
        return True


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
