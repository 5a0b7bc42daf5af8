"""The short way of reading a layout: producers and tools ask for them all the time.

Like `lookup.LookupFirst`, it stands in front of the application, answers what it can at once, and
leaves everything else, errors included, to the route in `scalable`, whose answers it gives.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.scalable import PREFIX
from anabranch.broker.http.scalable_models import encoded
from anabranch.broker.http.staleness import STALE_HEADER
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.wide import Shared
from anabranch.core.topics import ScalableTopic

_BYTES_MAX: Final = 32 << 20  # of all bodies that are kept
_KEPT_MAX: Final = 20_000  # segments of a body that is kept: one must not push out all others
_STALE: Final = (STALE_HEADER.lower().encode(), b"true")

_Headers = list[tuple[bytes, bytes]]


class _Bodies:
    """Encoded layouts by topic, as long as the topic is the same object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ScalableTopic, _Headers, bytes]] = {}
        self._bytes = 0
        self._shared: Shared[bytes] = Shared()

    async def of(self, name: str, topic: ScalableTopic) -> tuple[_Headers, bytes]:
        """Headers and body of the topic's layout."""
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1], known[2]
        mark = (topic.incarnation, topic.version)
        body = await self._shared.of(name, topic, mark, lambda: encoded(topic))
        if name in self._known:
            self._forget(name)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if len(topic.segments) > _KEPT_MAX:
            return headers, body
        while self._known and self._bytes + len(body) > _BYTES_MAX:
            self._forget(next(iter(self._known)))
        self._known[name] = (topic, headers, body)
        self._bytes += len(body)
        return headers, body

    def _forget(self, name: str) -> None:
        self._bytes -= len(self._known.pop(name)[2])


class LayoutFirst:
    """ASGI: answers reads of layouts that are there; all else goes to `app`."""

    def __init__(self, app: ASGIApp, topics: TopicOperations) -> None:
        self._app = app
        self._topics = topics
        self._bodies = _Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or not scope["path"].startswith(f"{PREFIX}/")
        ):
            await self._app(scope, receive, send)
            return
        name = scope["path"][len(PREFIX) + 1 :]
        topic = self._topics.open_topic(name) if name.count("/") == 2 else None
        if topic is None:
            await self._app(scope, receive, send)
            return
        headers, body = await self._bodies.of(name, topic)
        if self._topics.is_stale:
            headers = [*headers, _STALE]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
