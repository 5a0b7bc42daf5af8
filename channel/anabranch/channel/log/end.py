"""The present end of the log, asked of Kafka over a connection of its own.

Kafka answers a connection's requests in order. A question beside the reader's would thus wait as
long as the reader's request does for new records.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from anabranch.channel.kafka.connection import KafkaConnection, is_passing
from anabranch.channel.kafka.offsets import LATEST, PartitionOffsets

_ANSWER_S_MAX: Final = 5.0
_LOOK_S: Final = 1.0  # a leader that is gone does not answer, and librdkafka asks no other instead
_RETRY_S: Final = 0.05


class KafkaLogEnd:
    """Asks where a topic's only partition ends."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._place = (topic, 0)
        self._offsets = PartitionOffsets(connection)

    def close(self) -> None:
        """Ends the client, once its open requests are over."""
        self._offsets.close()

    async def ask(self) -> int:
        """The offset behind the last record that any reader may have seen.

        Raises KafkaUnreachableError or KafkaRefusedError.
        """
        deadline = time.monotonic() + _ANSWER_S_MAX
        while True:
            asked = self._offsets.soon([self._place], LATEST, _LOOK_S)
            answer = (await asyncio.wrap_future(asked))[self._place]
            if not isinstance(answer, KafkaError):
                return answer.offset
            if not is_passing(answer) or time.monotonic() > deadline:
                doing = f"to tell the end of {self._place[0]}"
                raise self._connection.explained(KafkaException(answer), doing)
            await asyncio.sleep(_RETRY_S)
