"""`Report`: takes Kafka's report of one message that cannot be told from the report alone."""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError, Message

from anabranch.client.flows import Held
from anabranch.client.segment_writer import Lane


class Waiting(Protocol):
    """Who is told. `awaited`: those that have not come; what is taken out of it tells nothing."""

    awaited: set[Report]

    def delivered(self, lane: Lane, held: Held, offset: int, timestamp_ms: int) -> None:
        """Kafka has the message."""


class Report:
    """To be called once, inside of `poll`, with what became of `held`."""

    __slots__ = ("held", "lane", "waiting")

    def __init__(self, waiting: Waiting, lane: Lane, held: Held) -> None:
        self.waiting = waiting
        self.lane = lane
        self.held = held
        waiting.awaited.add(self)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        try:
            self.waiting.awaited.remove(self)
        except KeyError:
            return
        lane = self.lane
        if error is not None:
            lane.troubled(lane, error, self.held, message)
            return
        offset = message.offset()
        if offset is None:
            offset = -1  # librdkafka lost the answer, and concludes from a later one
        lane.acked(offset)
        self.waiting.delivered(lane, self.held, offset, message.timestamp()[1])
