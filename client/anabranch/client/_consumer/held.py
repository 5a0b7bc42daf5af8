"""Tells an application that its consumer has lost the bucket of received messages.

Acknowledging raises BucketLostError, `while_held` cancels, and `is_revoked` answers questions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Self

import msgspec

from anabranch.client._consumer.assignment import Holding, Loss, SegmentBucket
from anabranch.client._consumer.messages import Batch, Message, parts_of
from anabranch.client._errors import BucketLostError


class Lost(msgspec.Struct, frozen=True):
    """A bucket of a topic that was taken away before all its received messages were
    acknowledged.
    """

    topic: str
    place: SegmentBucket
    loss: Loss

    @classmethod
    def of(cls, topic: str, holding: Holding) -> Self:
        # A bucket that is still held, and not ours by the clock, is about to be found lapsed.
        return cls(topic, holding.place, Loss.LAPSED if holding.is_held else holding.loss)


def raise_lost(lost: Sequence[Lost]) -> None:
    """Raises BucketLostError if there are any."""
    if not lost:
        return
    first, *others = lost
    more = f", and {len(others)} more," if others else ""
    raise BucketLostError(
        f"bucket {first.place.bucket} of segment {first.place.segment_id} of {first.topic}{more} "
        "was taken away before this was acknowledged, and it is delivered again, perhaps to "
        f"another consumer: {first.loss.value}"
    )


@contextlib.asynccontextmanager
async def while_held(received: Message | Batch) -> AsyncIterator[None]:
    """Cancels its body if a bucket of `received` is taken away, and raises BucketLostError then."""
    parts = parts_of(received)

    def lost() -> list[Lost]:
        return [Lost.of(s.topic, s.holding) for s, end in parts if s.is_revoked(end)]

    raise_lost(lost())
    try:
        async with asyncio.timeout(None) as limit:

            def stop() -> None:
                if lost() and not limit.expired():
                    limit.reschedule(0.0)

            for source, _ in parts:
                source.holding.listeners.append(stop)
            try:
                yield
            finally:
                for source, _ in parts:
                    with contextlib.suppress(ValueError):  # it was told
                        source.holding.listeners.remove(stop)
    except TimeoutError:
        if not limit.expired():
            raise
    raise_lost(lost())
