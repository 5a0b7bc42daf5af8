"""`QueueMessage`, `QueueBatch`: what a queue consumer gives out, each message to be settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from confluent_kafka import Message as KafkaMessage

from anabranch.client.delivery import Delivery
from anabranch.client.received import Message, Source


class QueueMessage(Message):
    """A message with its place in the delivery, by which it is settled."""

    __slots__ = ("delivery", "index")

    def __init__(self, raw: Any, source: Source, delivery: Delivery, index: int) -> None:
        super().__init__(raw, source)
        self.delivery = delivery
        self.index = index

    @property
    def delivery_count(self) -> int:
        """How often it was given out, this time included."""
        return int(self.raw.delivery_count() or 1)


class QueueBatch(Sequence[QueueMessage]):
    """Messages of one delivery; `QueueMessage` objects are made on access.

    `values` costs least for whoever wants nothing else of them.
    """

    __slots__ = ("_delivery", "_indices", "_plain", "_wrapped")

    def __init__(
        self,
        delivery: Delivery,
        indices: range,
        wrapped: Callable[[Delivery, int], QueueMessage],
        plain: bool,
    ) -> None:
        self._delivery = delivery
        self._indices = indices
        self._wrapped = wrapped
        self._plain = plain  # nothing deserializes values

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> QueueMessage: ...
    @overload
    def __getitem__(self, index: slice) -> QueueBatch: ...
    def __getitem__(self, index: int | slice) -> QueueMessage | QueueBatch:
        if isinstance(index, slice):
            return QueueBatch(self._delivery, self._indices[index], self._wrapped, self._plain)
        return self._wrapped(self._delivery, self._indices[index])

    def values(self) -> list[Any]:
        """The values of all messages. Raises DeserializationError."""
        if not self._plain:
            return [message.value for message in self]
        return list(map(KafkaMessage.value, self._delivery.messages_at(self._indices)))
