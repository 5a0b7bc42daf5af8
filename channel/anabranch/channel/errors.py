"""The errors of the channel; each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError, FaultError


class UnreadableError(AnabranchError):
    """Bytes that no known schema explains."""


class NewerSchemaError(FaultError):
    """A record of a newer release: going on without it would make this node's state differ."""

    def __init__(self, schema: str, place: str) -> None:
        super().__init__(
            f"{place} is of schema {schema!r}, which this release does not know: a node of a newer "
            "release wrote it; upgrade this one (it stops here, because skipping the record would "
            "make its state differ from the others')"
        )
        self.schema = schema
        self.place = place
