"""Where clients of a proxy shall go: the nodes' addresses in answers become the proxy's.

A client of a proxy cannot reach nodes, so no answer may send it to one. What merely names a node,
such as a broker's id, stays as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from anabranch.wire.anabranch_pb2 import CommandLookupTopicResponse, ScalableTopicDAG

_WEB: Final = "web"
_BINARY: Final = "binary"
# By the path that they answer: the fields of a JSON object that say where a node is.
_BODIES: Final = (
    (
        re.compile(rb"/lookup/v2/topic/.*"),
        {"brokerUrl": _BINARY, "nativeUrl": _BINARY, "httpUrl": _WEB},
    ),
    (
        re.compile(rb"/admin/v2/clusters/[^/]*/?"),
        {"serviceUrl": _WEB, "brokerServiceUrl": _BINARY},
    ),
    (re.compile(rb"/admin/v2/brokers/leaderBroker"), {"serviceUrl": _WEB}),
    (re.compile(rb"/admin/v2/brokers/status"), {"serviceUrl": _BINARY}),
)


class ProxyAddresses:
    """What clients of this proxy are told."""

    def __init__(self, web_url: str, service_url: str) -> None:
        self.web_url: Final = web_url
        self.service_url: Final = service_url
        self._urls = {_WEB: web_url, _BINARY: service_url}

    def in_lookup(self, answer: CommandLookupTopicResponse) -> None:
        """Changes the answer to a look-up."""
        if answer.brokerServiceUrl:
            answer.brokerServiceUrl = self.service_url
        answer.ClearField("brokerServiceUrlTls")

    def in_layout(self, dag: ScalableTopicDAG) -> None:
        """Changes a layout."""
        if dag.controller_broker_url:
            dag.controller_broker_url = self.service_url
        dag.ClearField("controller_broker_url_tls")
        for each in dag.segment_brokers:
            each.broker_url = self.service_url
            each.ClearField("broker_url_tls")

    def fields_of(self, path: bytes) -> dict[str, str] | None:
        """What is to be changed in the body of a 200 to that path; None for nothing."""
        for pattern, fields in _BODIES:
            if pattern.fullmatch(path):
                return fields
        return None

    def in_body(self, body: bytes, fields: dict[str, str]) -> bytes:
        """The body with those fields changed; as it is if it is no JSON object."""
        try:
            told: Any = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body
        if not isinstance(told, dict):
            return body
        for name, kind in fields.items():
            if told.get(name):
                told[name] = self._urls[kind]
        return msgspec.json.encode(told)

    def in_location(self, location: str) -> str:
        """A redirect to a node as one to this proxy."""
        parts = urlsplit(location)
        query = f"?{parts.query}" if parts.query else ""
        return f"{self.web_url}{parts.path}{query}"
