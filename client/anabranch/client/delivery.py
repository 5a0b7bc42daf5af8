"""`Delivery`: what one poll of a share consumer returned, until each message of it is settled."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Message

_OPEN: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3

_NONE: Final[Mapping[str, int]] = {}


class Delivery:
    """Settled on the event loop; over once all of it is, or when the reader's thread ends it.

    Of what is told to be settled, the end tells the answer: a lock keeps the two apart.
    """

    __slots__ = (
        "_answers",
        "_left",
        "_lock",
        "_over",
        "_settled",
        "counts",
        "messages",
        "size_bytes",
    )

    def __init__(
        self,
        messages: list[Message],
        counts: Mapping[str, int] = _NONE,
        size_bytes: int = 0,
    ) -> None:
        self.messages = messages
        self.counts = counts  # of messages, about, by topic: all topics are named
        self.size_bytes = size_bytes  # of the values, about
        self._answers = bytearray(len(messages))
        self._left = len(messages)
        self._over = False
        self._settled = threading.Event()
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether its messages are not ours any more: Kafka may give them to others."""
        return self._over

    def settle(self, index: int, answer: int) -> bool:
        """Says what becomes of one message. False if that is not ours to say any more."""
        with self._lock:
            if self._over:
                return False
            if self._answers[index] == _OPEN:
                self._left -= 1
            self._answers[index] = answer
            if self._left == 0:
                self._settled.set()
            return True

    def settle_open(self, count: int, answer: int) -> bool:
        """Says the same of all that is open among the first `count`."""
        with self._lock:
            if self._over:
                return False
            before = self._answers[:count]
            self._left -= before.count(_OPEN)
            self._answers[:count] = before.replace(bytes([_OPEN]), bytes([answer]))
            if self._left == 0:
                self._settled.set()
            return True

    def messages_at(self, indices: range) -> Sequence[Message]:
        """Some of the messages; all of them without a copy."""
        whole = len(indices) == len(self.messages)
        return self.messages if whole else [self.messages[index] for index in indices]

    def wait(self, timeout_s: float) -> bool:
        """For the reader: whether all was settled in time."""
        return self._settled.wait(timeout_s)

    def end(self) -> Sequence[int]:
        """For the reader: the answers; from now on nothing is settled any more."""
        with self._lock:
            self._over = True
            return [answer or RELEASE for answer in self._answers]
