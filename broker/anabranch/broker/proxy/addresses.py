"""Where clients of a proxy shall go: the nodes' addresses in answers become the proxy's.

A client of a proxy cannot reach nodes, so no answer may send it to one. What merely names a node,
such as a broker's id, stays as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from anabranch.wire import layouts
from anabranch.wire.anabranch_pb2 import CommandLookupTopicResponse, ScalableTopicDAG

_WEB, _WEB_TLS, _ANY_WEB = "web", "web tls", "any web"
_BINARY, _BINARY_TLS = "binary", "binary tls"
# By the path that they answer: the fields of JSON objects that say where a node is.
_BODIES: Final = (
    (
        re.compile(rb"/lookup/v2/topic/.*"),
        {
            "brokerUrl": _BINARY,
            "brokerUrlTls": _BINARY_TLS,
            "nativeUrl": _BINARY,
            "httpUrl": _WEB,
            "httpUrlTls": _WEB_TLS,
        },
    ),
    (
        re.compile(rb"/admin/v2/clusters/[^/]*/?"),
        {
            "serviceUrl": _WEB,
            "serviceUrlTls": _WEB_TLS,
            "brokerServiceUrl": _BINARY,
            "brokerServiceUrlTls": _BINARY_TLS,
        },
    ),
    (re.compile(rb"/admin/v2/brokers/leaderBroker"), {"serviceUrl": _ANY_WEB}),
    (
        re.compile(rb"/admin/v2/brokers/status"),
        {"serviceUrl": _BINARY, "serviceUrlTls": _BINARY_TLS},
    ),
    (
        re.compile(rb"/admin/v2/brokers/addresses"),
        {
            "webServiceUrl": _WEB,
            "webServiceUrlTls": _WEB_TLS,
            "brokerServiceUrl": _BINARY,
            "brokerServiceUrlTls": _BINARY_TLS,
        },
    ),
)


class ProxyAddresses:
    """What clients of this proxy are told; "" for a port that it does not have."""

    def __init__(
        self, web_url: str, service_url: str, web_url_tls: str = "", service_url_tls: str = ""
    ) -> None:
        self.web_url: Final = web_url
        self.service_url: Final = service_url
        self.web_url_tls: Final = web_url_tls
        self.service_url_tls: Final = service_url_tls
        self._urls = {
            _WEB: web_url,
            _WEB_TLS: web_url_tls,
            _ANY_WEB: web_url or web_url_tls,
            _BINARY: service_url,
            _BINARY_TLS: service_url_tls,
        }

    def in_lookup(self, answer: CommandLookupTopicResponse) -> None:
        """Changes the answer to a look-up."""
        if not answer.brokerServiceUrl and not answer.brokerServiceUrlTls:
            return
        _put(answer, "brokerServiceUrl", self.service_url)
        _put(answer, "brokerServiceUrlTls", self.service_url_tls)

    def in_layout(self, dag: ScalableTopicDAG) -> None:
        """Changes a layout."""
        if dag.controller_broker_url or dag.controller_broker_url_tls:
            _put(dag, "controller_broker_url", self.service_url)
            _put(dag, "controller_broker_url_tls", self.service_url_tls)
        for each in dag.segment_brokers:
            each.broker_url = self.service_url or self.service_url_tls
            _put(each, "broker_url_tls", self.service_url_tls)
        layouts.fit(dag)  # the proxy's address may be longer

    def fields_of(self, path: bytes) -> dict[str, str] | None:
        """What is to be changed in the body of a 200 to that path; None for nothing."""
        for pattern, fields in _BODIES:
            if pattern.fullmatch(path):
                return fields
        return None

    def in_body(self, body: bytes, fields: dict[str, str]) -> bytes:
        """The body with those fields changed; as it is if it is no JSON object, or list of such.

        Who is anywhere, by whichever port, is at the proxy, by each that it has.
        """
        try:
            told: Any = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body
        for each in told if isinstance(told, list) else [told]:
            if not isinstance(each, dict):
                return body
            if not any(each.get(name) for name in fields):
                continue
            for name in fields.keys() & each.keys():
                none = None if "nativeUrl" in fields else ""  # as look-ups say it, and all else
                each[name] = self._urls[fields[name]] or none
        return msgspec.json.encode(told)

    def in_location(self, location: str, *, is_tls: bool) -> str:
        """A redirect to a node as one to this proxy, by the kind of port that was asked."""
        parts = urlsplit(location)
        query = f"?{parts.query}" if parts.query else ""
        url = self.web_url_tls if is_tls else self.web_url
        return f"{url}{parts.path}{query}"


def _put(message: Any, field: str, url: str) -> None:
    if url:
        setattr(message, field, url)
    else:
        message.ClearField(field)
