"""`StreamConsumer`: ordered, acknowledged cumulatively, positions kept in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from anabranch.client.errors import DeadlineError, SessionLapsedError
from anabranch.client.grants import Fetch
from anabranch.client.group_offsets import GroupOffsets
from anabranch.client.holding import Holding
from anabranch.client.ordered import OrderedConsumer
from anabranch.client.received import Batch, Message
from anabranch.wire.anabranch_pb2 import ScalableConsumerType


class StreamConsumer(OrderedConsumer):
    """Receives each bucket's messages in order, beside the subscription's other consumers.

    An acknowledgement stands for everything before it in the same bucket. It is committed to Kafka
    in the background within `commit_interval_s`, at once where somebody waits for it, and `flush`
    waits for it. What was not acknowledged is delivered again when a bucket moves or its consumer
    ends; while all acknowledge in time and no session lapses, no message is delivered twice.
    """

    _kind = ScalableConsumerType.STREAM
    _skips_gone = True

    def acknowledge(self, received: Message | Batch) -> bool:
        """Everything up to this message, or this batch, has been processed.

        False if a bucket of it is not this consumer's any more: what was not acknowledged of that
        will be delivered again, perhaps to another consumer.
        """
        if isinstance(received, Message):
            return self._acknowledge([(received.source.holding, received.offset + 1)])
        sources = received.sources()
        return self._acknowledge((sources[n].holding, end) for n, end in received.ends.items())

    def acknowledge_all(self) -> bool:
        """Everything that was received so far has been processed."""
        return self._acknowledge(list(self._delivered()))

    async def flush(self, timeout_s: float = 10.0) -> None:
        """Returns once everything that is acknowledged is committed.

        Raises DeadlineError, and SessionLapsedError when a lapse came first, be it before the call.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._core.commits(self._now()):
                    self._check()
                    self._readable.clear()
                    self._commit_at = 0.0
                    self._poke.set()
                    await self._readable.wait()
        except TimeoutError:
            raise DeadlineError(
                f"Kafka did not take the commits of {self.topic} in {timeout_s:g} s"
                f"{self._reading.trouble.last}"
            ) from None
        if self._core.lost:
            self._core.lost = False
            raise SessionLapsedError(
                f"the session of {self.consumer_name} of {self.topic} lapsed before all that was "
                "acknowledged was committed: the rest is delivered again"
            )

    def _delivered(self) -> Iterator[tuple[Holding, int]]:
        for holding in self._core.holdings.values():
            if holding.delivered is not None:
                yield holding, holding.delivered

    async def _positions(self, group: GroupOffsets, fetches: list[Fetch]) -> dict[int, int]:
        found = await group.committed(fetch.partition for fetch in fetches)
        begun = [partition for partition, position in found.items() if position > 0]
        for partition, (first, end) in (await group.ranges(begun)).items():
            if not first <= found[partition] <= end:
                # Retention has removed it, or Kafka has lost what it had. What is left is read, and
                # nothing passed over.
                self._log.warning(
                    "consumer.position_gone",
                    kafka_topic=partition[0],
                    bucket=partition[1],
                    position=found[partition],
                    first=first,
                    end=end,
                )
                found[partition] = first
        return {fetch.number: found[fetch.partition] for fetch in fetches}

    async def _commit(self, group: GroupOffsets, offsets: list[tuple[Holding, int]]) -> None:
        wanted = {holding.partition: end for holding, end in offsets}
        if await group.commit(wanted, self._core.commits_until()):
            now = self._now()
            for holding, end in offsets:
                self._core.on_committed(holding, end, now)
