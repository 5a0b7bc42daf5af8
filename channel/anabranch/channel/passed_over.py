"""`PassedOver`: the records of soft state that a node cannot read and passes over."""

from __future__ import annotations

import structlog

from anabranch.channel.errors import NewerSchemaError, UnreadableError

_log = structlog.get_logger()


class PassedOver:
    """The records passed over in one Kafka topic. `event`: the log's event for a newer release's
    schema.
    """

    def __init__(self, event: str) -> None:
        self.count = 0
        self._event = event
        self._warned = ""  # the schema last told of

    def note(
        self, error: UnreadableError | NewerSchemaError | None, key: str | bytes | None
    ) -> None:
        """Counts one more, with this key; None: its key is strange. Logs each newer schema once."""
        self.count += 1
        if isinstance(error, NewerSchemaError) and error.schema != self._warned:
            self._warned = error.schema
            _log.warning(self._event, schema=error.schema, key=key)
