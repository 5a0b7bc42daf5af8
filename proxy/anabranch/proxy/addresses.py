"""The nodes' addresses in answers become the proxy's.

A client of a proxy cannot reach nodes, so no answer may send it to one. Names of nodes stay, such
as a broker's id.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from anabranch.wire import layouts
from anabranch.wire.anabranch_pb2 import CommandLookupTopicResponse, ScalableTopicDAG

_WEB, _WEB_TLS, _ANY_WEB = "web", "web tls", "any web"
_BINARY, _BINARY_TLS = "binary", "binary tls"
_BROKER: Final = {"brokerServiceUrl": _BINARY, "brokerServiceUrlTls": _BINARY_TLS}
_LOOKUP: Final = {
    "brokerUrl": _BINARY,
    "brokerUrlTls": _BINARY_TLS,
    "nativeUrl": _BINARY,
    "httpUrl": _WEB,
    "httpUrlTls": _WEB_TLS,
}
# By the path that they answer: the fields of JSON objects that say where a node is.
_BODIES: Final = tuple(
    (re.compile(path), fields)
    for path, fields in (
        (rb"/lookup/v2/topic/.*", _LOOKUP),
        (rb"/admin/v2/brokers/leaderBroker", {"serviceUrl": _ANY_WEB}),
        (rb"/admin/v2/brokers/status", {"serviceUrl": _BINARY, "serviceUrlTls": _BINARY_TLS}),
        (
            rb"/admin/v2/brokers/addresses",
            {**_BROKER, "webServiceUrl": _WEB, "webServiceUrlTls": _WEB_TLS},
        ),
    )
)


class ProxyAddresses:
    """The URLs that clients of this proxy are told; "" for a port that it does not have."""

    def __init__(
        self, web_url: str, service_url: str, web_url_tls: str = "", service_url_tls: str = ""
    ) -> None:
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
        for field, kind in _BROKER.items():
            _put(answer, field, self._urls[kind])

    def in_layout(self, dag: ScalableTopicDAG) -> None:
        """Changes a layout."""
        plain, tls = self._urls[_BINARY], self._urls[_BINARY_TLS]
        if dag.controller_broker_url or dag.controller_broker_url_tls:
            _put(dag, "controller_broker_url", plain)
            _put(dag, "controller_broker_url_tls", tls)
        for each in dag.segment_brokers:
            each.broker_url = plain or tls
            _put(each, "broker_url_tls", tls)
        layouts.fit(dag)  # the proxy's address may be longer

    def fields_of(self, path: bytes) -> dict[str, str] | None:
        """The fields to change in the body of a 200 to that path; None for none."""
        for pattern, fields in _BODIES:
            if pattern.fullmatch(path):
                return fields
        return None

    def in_body(self, body: bytes, fields: dict[str, str]) -> bytes:
        """The body with those fields changed; unchanged if it is no JSON object, or list of such.

        An object that has any of the fields gets all URLs of the proxy.
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


def _put(message: Any, field: str, url: str) -> None:
    if url:
        setattr(message, field, url)
    else:
        message.ClearField(field)
