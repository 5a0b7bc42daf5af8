"""`Work`: what a handler is told besides its message."""

from __future__ import annotations

from anabranch.client._consumer.holding import Holding


class Work:
    """One attempt at one message.

    `attempt` counts from 1, in this process. `id` is the place of the message for ever, over moves,
    splits and merges: incarnation of the topic, segment, bucket and offset. It is the key by which
    an application knows a message that comes again. `deadline` is the loop's time at which the
    attempt is cancelled, None for none.
    """

    __slots__ = ("_holding", "_incarnation", "_offset", "attempt", "deadline")

    def __init__(
        self,
        holding: Holding,
        incarnation: int,
        offset: int,
        attempt: int,
        deadline: float | None,
    ) -> None:
        self._holding = holding
        self._incarnation = incarnation
        self._offset = offset
        self.attempt = attempt
        self.deadline = deadline

    @property
    def id(self) -> str:
        """Names the message: `incarnation/segment/bucket@offset`."""
        segment_id, bucket = self._holding.place
        return f"{self._incarnation}/{segment_id}/{bucket}@{self._offset}"

    @property
    def is_lost(self) -> bool:
        """True if the bucket was taken away, so that somebody else works on the message soon."""
        return not self._holding.is_held

    def __repr__(self) -> str:
        return f"Work({self.id}, attempt {self.attempt})"
