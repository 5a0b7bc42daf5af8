"""Reads of layouts: the short way that nearly all of them take, as look-ups have one.

`LayoutFirst` stands in front of the application and gives answers that it has encoded before, for
as long as the view holds the very topic that they were made of. Whatever it has not, from a path
that is malformed to a topic that is not there, goes on to the route; a test holds that both answer
alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.scalable import PREFIX
from anabranch.broker.http.scalable_models import layout_body
from anabranch.broker.topics.operations import TopicOperations, parse
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics import ScalableTopic

_START: Final = PREFIX + "/"
_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024  # of all bodies
_BODY_BYTES_MAX: Final = 256 * 1024  # a larger one takes the long way


class _Answer(NamedTuple):
    name: str
    topic: ScalableTopic
    headers: list[tuple[bytes, bytes]]
    body: bytes


class LayoutFirst:
    """ASGI: answers reads of layouts that are at hand; all else goes to `app`."""

    def __init__(self, app: ASGIApp, topics: TopicOperations) -> None:
        self._app = app
        self._runtime = topics.access.runtime
        self._answers: dict[str, _Answer] = {}
        self._kept_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if scope["type"] == "http" and scope["path"].startswith(_START):
            answer = self._answer(scope)
        if answer is None:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    def _answer(self, scope: Scope) -> _Answer | None:
        # The route marks what a node says that may be behind.
        if scope["method"] != "GET" or not self._runtime.has_lease:
            return None
        path: str = scope["path"]
        known = self._answers.get(path)
        if known is not None and self._runtime.view.topic(known.name) is known.topic:
            return known
        return self._made(path)

    def _made(self, path: str) -> _Answer | None:
        parts = path[len(_START) :].split("/")
        if len(parts) != 3:
            return None
        try:
            name = parse(*parts)
        except InvalidInputError:
            return None
        topic = self._runtime.view.topic(name)
        if topic is None or not topic.is_open:
            return None
        body = msgspec.json.encode(layout_body(topic))
        if len(body) > _BODY_BYTES_MAX:
            return None
        length = str(len(body)).encode()
        headers = [(b"content-length", length), (b"content-type", b"application/json")]
        answer = _Answer(name, topic, headers, body)
        self._keep(path, answer)
        return answer

    def _keep(self, path: str, answer: _Answer) -> None:
        before = self._answers.pop(path, None)
        self._kept_bytes += len(answer.body) - (0 if before is None else len(before.body))
        if self._kept_bytes > _KEPT_BYTES_MAX:
            self._answers.clear()
            self._kept_bytes = len(answer.body)
        self._answers[path] = answer
