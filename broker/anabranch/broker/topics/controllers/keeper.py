"""`KafkaSegments`: the channel's `SegmentAdmin`, which asks Kafka by fewer bytes.

If Kafka cannot be asked so (`can_ask`), librdkafka asks it. librdkafka tells all settings of a
topic, and one setting of a broker only with all its others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.core.topics.findings import KafkaTopic
from anabranch.wire import clock
from anabranch.wire.kafka.described import BrokerViews, TopicDescriber
from anabranch.wire.kafka.protocol import KafkaProtocolError, bootstrap_addresses, can_ask

_ASK_S_MAX: Final = 2.0
_VIEW_S_MAX: Final = 0.4  # it takes a hundredth of that, and producers wait


class KafkaSegments(SegmentAdmin):
    """A `SegmentKeeper`, for use by one thread."""

    def __init__(self, connection: KafkaConnection, settings: SegmentSettings) -> None:
        security, asks = connection.security, can_ask(connection.security)
        super().__init__(connection, settings, BrokerViews(security, _VIEW_S_MAX) if asks else None)
        brokers = bootstrap_addresses(connection.bootstrap_servers)
        self._describer = TopicDescriber(brokers, security, _ASK_S_MAX) if asks else None

    def close(self) -> None:
        """Ends the connections, too."""
        if self._describer is not None:
            self._describer.close()
        super().close()

    def look(self, topics: Sequence[str], deadline_s: float) -> dict[str, KafkaTopic | None]:
        deadline = clock.now() + deadline_s
        if self._describer is not None:
            with suppress(OSError, KafkaProtocolError):  # librdkafka tells the fault
                return self._describer.described(topics, self.told)
        return super().look(topics, deadline - clock.now())
