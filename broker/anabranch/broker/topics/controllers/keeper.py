"""`KafkaSegments`: the channel's `SegmentAdmin`, which looks at segments by fewer bytes.

Where Kafka cannot be asked so (`can_ask`), librdkafka is, which tells all settings of a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.core.topics.findings import KafkaTopic
from anabranch.wire import clock
from anabranch.wire.kafka.described import TopicDescriber
from anabranch.wire.kafka.protocol import KafkaProtocolError, bootstrap_addresses, can_ask

_ASK_S_MAX: Final = 2.0


class KafkaSegments(SegmentAdmin):
    """A `SegmentKeeper`. To be used by one thread."""

    def __init__(self, connection: KafkaConnection, settings: SegmentSettings) -> None:
        super().__init__(connection, settings)
        brokers = bootstrap_addresses(connection.bootstrap_servers)
        asks = can_ask(connection.security)
        self._describer = TopicDescriber(brokers, connection.security, _ASK_S_MAX) if asks else None

    def close(self) -> None:
        """Ends the connections, too."""
        if self._describer is not None:
            self._describer.close()
        super().close()

    def look(self, topics: Sequence[str], deadline_s: float) -> dict[str, KafkaTopic | None]:
        deadline = clock.now() + deadline_s
        if self._describer is not None:
            with suppress(OSError, KafkaProtocolError):  # what is wrong librdkafka tells
                return self._describer.described(topics, self.told)
        return super().look(topics, deadline - clock.now())
