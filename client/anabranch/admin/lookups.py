"""Look-ups: who serves a topic."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, path
from anabranch.core import names


class LookupData(Answer, frozen=True):
    """Where the owner of a topic's bundle answers; None for what it does not offer."""

    broker_url: str | None
    broker_url_tls: str | None
    http_url: str | None
    http_url_tls: str | None
    native_url: str | None


_LOOKUP: Final = msgspec.json.Decoder(LookupData).decode


def _path(topic: str, *more: str) -> str:
    name, _ = names.parse_topic(topic)
    domain, _, rest = name.partition("://")
    return path("lookup", "v2", "topic", domain, *rest.split("/", 2), *more)


class Lookups(Resource[TransportT]):
    """Look-ups."""

    @RestMethod
    def lookup_topic(self, topic: str) -> Call[LookupData]:
        """Where the topic's owner is; waits while its bundle moves, assigns it if nobody has it.

        A topic is [domain://]tenant/namespace/name. It need not exist: its bundle has an owner.
        """
        return Call("GET", _path(topic), _LOOKUP)

    @RestMethod
    def get_bundle_range(self, topic: str) -> Call[str]:
        """The range of the bundle that the topic's name falls into."""
        return Call("GET", _path(topic, "bundle"), bytes.decode)
