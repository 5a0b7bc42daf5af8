"""Look-ups over HTTP, by the binary protocol: they cost a fraction of a request to a node.

Only an answer that names an owner is given so: it says where this proxy is, whoever that is. All
else, a refusal above all, is what a node itself says to the request.
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import Scope

from anabranch.broker.http.guards.authentication import known_at_once
from anabranch.broker.http.guards.connections import OfferedRequest, ReadyAnswer
from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.proxy.parts import SharedParts
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
)

_PREFIX: Final = "/lookup/v2/topic/"
_BUNDLE_SUFFIX: Final = "/bundle"
_PARTS: Final = 4  # domain, tenant, namespace, and the rest is the topic's local name
_ORIGIN: Final = b"origin"  # what a browser says of a page, whose answers have headers of their own


class QuickLookups:
    """Takes look-ups that may be answered at once; all else goes to the application."""

    def __init__(self, shared: SharedParts, site: OriginRules) -> None:
        self._nodes = shared.nodes
        self._counts = shared.counts
        self._security = shared.security
        self._site = site
        addresses = shared.addresses
        told = {
            "brokerUrl": addresses.service_url or None,
            "brokerUrlTls": addresses.service_url_tls or None,
            "httpUrl": addresses.web_url or None,
            "httpUrlTls": addresses.web_url_tls or None,
            "nativeUrl": addresses.service_url or None,
        }
        body = msgspec.json.encode(told)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        self._owned = ReadyAnswer(b"HTTP/1.1 200 OK", headers, body)

    def __call__(self, request: OfferedRequest) -> bool:
        scope = request.scope
        if scope["method"] != "GET":
            return False
        topic = _topic_in(scope["path"])
        headers = scope["headers"]
        if not topic or any(name == _ORIGIN for name, _ in headers):
            return False
        if self._site.refuses("GET", headers) is not None:
            return False
        asker = self._asker(request.scope)
        if asker is None:
            return False
        command = BaseCommand(type=BaseCommand.LOOKUP)
        command.lookupTopic.topic = topic
        command.lookupTopic.request_id = 0  # the link gives it another one
        if asker:
            command.lookupTopic.original_principal = asker
        return self._nodes.look_up(_Question(self, request), command)

    def _asker(self, scope: Scope) -> str | None:
        """For whom the node is asked; None where that has to be made sure of first."""
        if self._security is None:
            return ""
        known = known_at_once(self._security.authenticator, scope)
        if known is None or not known.role:
            return None
        return self._security.asker_of(known)

    def told(self, request: OfferedRequest, answer: BaseCommand) -> None:
        """A node has said."""
        if answer.lookupTopicResponse.response == CommandLookupTopicResponse.Connect:
            self._counts.http_requests += 1
            request.answer(self._owned)
        else:
            request.hand_on()


class _Question:
    """One look-up."""

    __slots__ = ("_lookups", "_request")

    def __init__(self, lookups: QuickLookups, request: OfferedRequest) -> None:
        self._lookups = lookups
        self._request = request

    def lookup_answered(self, _number: int, answer: BaseCommand) -> None:
        """A node has said."""
        self._lookups.told(self._request, answer)

    def lookup_lost(self, _number: int, _command: BaseCommand) -> None:
        """No node has: another one is asked by HTTP."""
        self._request.hand_on()


def _topic_in(path: str) -> str:
    """The topic that a look-up is for; "" if the path is of something else."""
    if not path.startswith(_PREFIX) or path.endswith(_BUNDLE_SUFFIX):
        return ""
    parts = path[len(_PREFIX) :].split("/", _PARTS - 1)
    if len(parts) != _PARTS or not all(parts):
        return ""
    return f"{parts[0]}://{parts[1]}/{parts[2]}/{parts[3]}"
