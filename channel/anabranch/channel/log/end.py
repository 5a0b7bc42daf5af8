"""Where the log ends now, asked of Kafka over a connection of its own.

Kafka answers a connection's requests in order, so a question beside the reader's would wait for as
long as the reader's request does for new records.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from anabranch.channel.kafka.connection import LATEST_OFFSET, KafkaConnection
from anabranch.channel.log.kafka_log import is_passing

_ANSWER_S_MAX: Final = 5.0
_LOOK_S: Final = 1.0  # a leader that is gone does not answer, and librdkafka asks no other instead
_RETRY_S: Final = 0.05


class KafkaLogEnd:
    """Asks where a topic's only partition ends."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._admin = connection.admin()

    async def ask(self) -> int:
        """The offset behind the last record that any reader may have seen.

        Raises KafkaUnreachableError or KafkaRefusedError.
        """
        deadline = time.monotonic() + _ANSWER_S_MAX
        asked = {TopicPartition(self._topic, 0): LATEST_OFFSET}
        while True:
            (future,) = self._admin.list_offsets(asked, request_timeout=_LOOK_S).values()
            try:
                return int((await asyncio.wrap_future(future)).offset)
            except KafkaException as error:
                if not is_passing(error.args[0]) or time.monotonic() > deadline:
                    doing = f"to tell the end of {self._topic}"
                    raise self._connection.explained(error, doing) from None
            await asyncio.sleep(_RETRY_S)
