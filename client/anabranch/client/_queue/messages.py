"""Messages of a queue consumer: `QueueMessage`, `QueueBatch`, and their `Delivery`.

A delivery is the result of one poll of a share consumer, until each of its messages is settled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, overload

from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.messages import Message, Source

_OPEN: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
HELD: Final = 4  # its answer is not known yet, and the application cannot give one any more
DELAY: Final = 5  # released, but not at once

_NONE: Final[Mapping[str, int]] = {}


class Delivery:
    """Settled on the event loop. It is over once all of it was settled, or when the reader's thread
    ends it.

    A lock orders acknowledgements and the end, so that the end returns all that came in time. Held
    and delayed messages then stay locked in Kafka, and `freed` tells the time and the answer of
    their end. `hold_until` is the latest time at which the thread ends the delivery, by
    `time.monotonic`.
    """

    def __init__(
        self,
        messages: list[KafkaMessage],
        counts: Mapping[str, int] = _NONE,
        size_bytes: int = 0,
        hold_until: float = math.inf,
    ) -> None:
        self.messages = messages
        self.counts = counts  # rough numbers of messages by topic; all topics are named
        self.size_bytes = size_bytes  # roughly, of the values
        self.hold_until = hold_until
        self._answers = bytearray(len(messages))
        self._due: dict[int, float] = {}  # after the end: for those that are still locked
        self._open = len(messages)
        self._held = 0
        self._over = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    @property
    def is_over(self) -> bool:
        """True once the application may not settle its messages any more."""
        return self._over

    def is_revoked(self, index: int) -> bool:
        """Returns True if it is over, and Kafka delivers this message again."""
        return self._over and self._answers[index] not in (ACCEPT, REJECT)

    def acknowledge(self, index: int, answer: int, due: float = 0.0) -> bool:
        """Settles one message. Returns False if the caller may not settle it any more.

        With the answer DELAY the message is released at the time `due`, by `time.monotonic`.
        """
        with self._lock:
            if self._over:
                return False
            if self._answers[index] != HELD:
                if answer == DELAY:
                    self._due[index] = due
                self._set(index, answer)
            return True

    def hold(self, index: int) -> bool:
        """Keeps a message until `acknowledge_held`.
        Returns False if it is over, or held already.
        """
        with self._lock:
            if self._over or self._answers[index] == HELD:
                return False
            self._held += 1
            self._due[index] = self.hold_until
            self._set(index, HELD)
            return True

    def acknowledge_held(self, index: int, answer: int) -> bool:
        """Settles a held message. Returns False if it was released meanwhile."""
        with self._lock:
            if self._answers[index] != HELD:
                return False
            self._held -= 1
            self._set(index, answer)
            return True

    def _set(self, index: int, answer: int) -> None:
        if self._answers[index] == _OPEN:
            self._open -= 1
        self._answers[index] = answer
        if self._open == 0:
            self._changed.notify_all()

    def acknowledge_open(self, count: int, answer: int) -> bool:
        """Settles all open messages among the first `count`."""
        with self._lock:
            if self._over:
                return False
            before = self._answers[:count]
            self._open -= before.count(_OPEN)
            self._answers[:count] = before.replace(bytes([_OPEN]), bytes([answer]))
            if self._open == 0:
                self._changed.notify_all()
            return True

    def messages_at(self, indices: Sequence[int]) -> Sequence[KafkaMessage]:
        """Returns some of the messages. It returns all of them without a copy."""
        whole = len(indices) == len(self.messages)
        return self.messages if whole else [self.messages[index] for index in indices]

    # For the reader, on its thread.

    def wait(self, timeout_s: float) -> bool:
        """Returns True if the application has settled each message in time."""
        with self._lock:
            return self._changed.wait_for(lambda: self._open == 0, timeout_s)

    def wait_held(self, timeout_s: float) -> None:
        """Waits until nothing is held, for `timeout_s` seconds at most."""
        with self._lock:
            self._changed.wait_for(lambda: self._held == 0, timeout_s)

    def end(self) -> tuple[Sequence[int], Mapping[int, float]]:
        """Ends it. Returns the answers, and the times until which HELD and DELAY ones stay locked.

        From now on only held messages can be settled.
        """
        with self._lock:
            self._over = True
            self._open = 0
            self._answers = self._answers.replace(bytes([_OPEN]), bytes([RELEASE]))
            due = self._due.items()
            self._due = {n: at for n, at in due if self._answers[n] in (HELD, DELAY)}
            return list(self._answers), dict(self._due)

    def freed(self) -> list[tuple[int, int]]:
        """Waits for the next messages whose lock is to end, and returns them with their answers.

        Returns nothing once there are no more.
        """
        with self._lock:
            while self._due:
                now = time.monotonic()
                found = [n for n, at in self._due.items() if at <= now or self._is_answered(n)]
                for index in found:
                    del self._due[index]
                    if not self._is_answered(index):
                        self._answers[index] = RELEASE
                if found:
                    return [(index, self._answers[index]) for index in found]
                until = min(self._due.values())
                self._changed.wait(None if until == math.inf else until - now)
            return []

    def _is_answered(self, index: int) -> bool:
        return self._answers[index] not in (HELD, DELAY)

    def free(self) -> None:
        """Ends all locks."""
        with self._lock:
            self._due = dict.fromkeys(self._due, -math.inf)
            self._changed.notify_all()


class QueueMessage(Message):
    """A message with its place in the delivery, by which it is settled."""

    __slots__ = ("delivery", "index")

    def __init__(self, raw: Any, source: Source, delivery: Delivery, index: int) -> None:
        super().__init__(raw, source)
        self.delivery = delivery
        self.index = index

    @property
    def is_revoked(self) -> bool:
        """True once its time is over. Kafka delivers it again, unless it was settled."""
        return self.delivery.is_revoked(self.index)

    @property
    def delivery_count(self) -> int:
        """The number of its deliveries, including this one."""
        return int(self.raw.delivery_count() or 1)


class QueueBatch(Sequence[QueueMessage]):
    """Messages of one delivery. It makes `QueueMessage` objects on access.

    `values` costs least if you need nothing else.
    """

    __slots__ = ("_delivery", "_indices", "_plain", "_wrapped")

    def __init__(
        self,
        delivery: Delivery,
        indices: Sequence[int],
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
