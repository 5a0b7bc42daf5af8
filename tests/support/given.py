"""Messages of share groups, with the number of their deliveries."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message as KafkaMessage


class Given(KafkaMessage):
    """A message of a share group that was given out so often."""

    def __init__(self, value: bytes, offset: int, count: int, **fields: Any) -> None:
        super().__init__(topic="k", partition=0, value=value, offset=offset, **fields)
        self.count = count

    def delivery_count(self) -> int:
        return self.count
