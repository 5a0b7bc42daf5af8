"""`Work`: what a handler is told besides its message."""

from __future__ import annotations

from anabranch.client._consumer.messages import Message


class Work:
    """One attempt at one message.

    `attempt` counts from 1, in this process. `id` is the place of the message for ever, over moves,
    splits and merges: incarnation of the topic, segment, bucket and offset. It is the key by which
    an application knows a message that comes again. `deadline` is the loop's time at which the
    attempt is cancelled, None for none.
    """

    __slots__ = ("_incarnation", "_message", "attempt", "deadline")

    def __init__(
        self, message: Message, incarnation: int, attempt: int, deadline: float | None
    ) -> None:
        self._message = message
        self._incarnation = incarnation
        self.attempt = attempt
        self.deadline = deadline

    @property
    def id(self) -> str:
        """Names the message: `incarnation/segment/bucket@offset`."""
        at = self._message
        return f"{self._incarnation}/{at.segment_id}/{at.bucket}@{at.offset}"

    @property
    def fence(self) -> int:
        """A number of the bucket, greater than that of each consumer that had its keys before.

        A store that refuses a smaller one than it has seen is safe from a consumer that is late. It
        is 0 in a queue, which grants no buckets.
        """
        return self._message.source.holding.fence

    @property
    def is_lost(self) -> bool:
        """True if the bucket was taken away, so that somebody else works on the message soon."""
        return self._message.is_revoked

    def __repr__(self) -> str:
        return f"Work({self.id}, attempt {self.attempt})"
