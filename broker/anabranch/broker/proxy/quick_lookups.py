"""Look-ups over HTTP, by the binary protocol: they cost a fraction of a request to a node.

Only an answer that names an owner is given so: it says where this proxy is, whoever that is. All
else, a refusal above all, is what a node itself says to the request.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.broker.proxy.counts import ProxyCounts
from anabranch.broker.proxy.nodes import KnownNodes
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
)

_PREFIX: Final = "/lookup/v2/topic/"
_BUNDLE_SUFFIX: Final = "/bundle"
_PARTS: Final = 4  # domain, tenant, namespace, and the rest is the topic's local name


class QuickLookups:
    """ASGI: look-ups that succeed at once; all else goes to `app`."""

    def __init__(
        self, app: ASGIApp, nodes: KnownNodes, addresses: ProxyAddresses, counts: ProxyCounts
    ) -> None:
        self._app = app
        self._nodes = nodes
        self._counts = counts
        told = {
            "brokerUrl": addresses.service_url,
            "brokerUrlTls": None,
            "httpUrl": addresses.web_url,
            "httpUrlTls": None,
            "nativeUrl": addresses.service_url,
        }
        self._body = msgspec.json.encode(told)
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._body)).encode()),
        ]
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            topic = _topic_in(scope["path"])
            if topic and await self._is_owned(topic):
                self._counts.http_requests += 1
                start = {"type": "http.response.start", "status": 200, "headers": self._headers}
                await send(start)
                await send({"type": "http.response.body", "body": self._body})
                return
        await self._app(scope, receive, send)

    async def _is_owned(self, topic: str) -> bool:
        question = _Question(self._loop.create_future())
        command = BaseCommand(type=BaseCommand.LOOKUP)
        command.lookupTopic.topic = topic
        command.lookupTopic.request_id = 0  # the link gives it another one
        return self._nodes.look_up(question, command) and await question.is_owned


class _Question:
    """One look-up."""

    __slots__ = ("is_owned",)

    def __init__(self, is_owned: asyncio.Future[bool]) -> None:
        self.is_owned = is_owned

    def lookup_answered(self, _number: int, answer: BaseCommand) -> None:
        """A node has said."""
        if not self.is_owned.done():
            response = answer.lookupTopicResponse.response
            self.is_owned.set_result(response == CommandLookupTopicResponse.Connect)

    def lookup_lost(self, _number: int, _command: BaseCommand) -> None:
        """No node has: another one is asked by HTTP."""
        if not self.is_owned.done():
            self.is_owned.set_result(False)


def _topic_in(path: str) -> str:
    """The topic that a look-up is for; "" if the path is of something else."""
    if not path.startswith(_PREFIX) or path.endswith(_BUNDLE_SUFFIX):
        return ""
    parts = path[len(_PREFIX) :].split("/", _PARTS - 1)
    if len(parts) != _PARTS or not all(parts):
        return ""
    return f"{parts[0]}://{parts[1]}/{parts[2]}/{parts[3]}"
