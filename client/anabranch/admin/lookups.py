"""Look-ups of the brokers that serve topics."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, path
from anabranch.core import names


class LookupData(Answer, frozen=True):
    """The addresses of the owner of a topic's bundle, None for a port that the owner
    does not have.
    """

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
        """Returns the addresses of the topic's owner. The node waits while the bundle moves, and
        assigns a bundle that nobody owns.

        A topic is [domain://]tenant/namespace/name. It need not exist, because its bundle has an
        owner.
        """
        return Call("GET", _path(topic), _LOOKUP)

    @RestMethod
    def get_bundle_range(self, topic: str) -> Call[str]:
        """Returns the range of the bundle that the topic's name falls into."""
        return Call("GET", _path(topic, "bundle"), bytes.decode)
