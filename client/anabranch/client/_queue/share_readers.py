"""`ShareReaders`: the members of a share group that one queue consumer has.

One reads at a time. Where it is parked, since some of its messages are to be released later,
another one takes over; whoever is not needed is subscribed to nothing, so that Kafka gives it no
partitions that nobody would read, and leaves the group after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from anabranch.client._errors import KafkaReadError
from anabranch.client._queue.messages import Delivery
from anabranch.client._queue.share_reader import ShareReader

_MEMBERS_MAX: Final = 8

Make = Callable[[Callable[[], None]], ShareReader]  # with what is to be called when it is parked


class ShareReaders:
    """Used as one `ShareReader` that is never parked, unless all that there may be are."""

    def __init__(self, make: Make, on_read: Callable[[], None]) -> None:
        self._make = make
        self._on_read = on_read
        self._topics: tuple[str, ...] = ()
        self._is_closing = False
        self._members = [make(self._parked)]
        self._reading: ShareReader | None = self._members[0]

    @property
    def failure(self) -> KafkaReadError | None:
        """Why nothing can be read any more."""
        return next((each.failure for each in self._members if each.failure is not None), None)

    @property
    def last_trouble(self) -> str:
        """What Kafka refused or lacked last, for the end of a message."""
        return (
            self._members[0].last_trouble if self._reading is None else self._reading.last_trouble
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Poll these, and no others."""
        self._topics = tuple(sorted(topics))
        if self._reading is not None:
            self._reading.subscribe(self._topics)

    def take(self) -> Delivery | None:
        """The delivery that is there. If there is none, one is asked for, and `on_read` tells."""
        return None if self._reading is None else self._reading.take()

    @contextlib.contextmanager
    def receiver(self) -> Iterator[None]:
        """Around the waiting of a receiver, as that of the reader."""
        with self._reading.receiver() if self._reading else contextlib.nullcontext():
            yield

    async def close(self, current: Delivery | None) -> bool:
        """Settles and leaves, as each member does; what is to be released later is so at once."""
        self._is_closing = True
        return all(await asyncio.gather(*(each.close(current) for each in self._members)))

    def _parked(self) -> None:
        """Lets another one read where this one is kept from it, or was the last."""
        if self._is_closing or (self._reading is not None and not self._reading.is_parked):
            return
        if self._reading is not None:
            self._reading.subscribe(())
        self._reading = next((each for each in self._members if not each.is_parked), None)
        if self._reading is None and len(self._members) < _MEMBERS_MAX:
            self._reading = self._make(self._parked)
            self._members.append(self._reading)
        if self._reading is not None:
            self._reading.subscribe(self._topics)
            self._on_read()  # whoever waits is to ask the one that reads now
