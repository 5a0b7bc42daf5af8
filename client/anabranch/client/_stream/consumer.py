"""`StreamConsumer`: ordered, with positions in a Kafka group."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import KafkaError

from anabranch.client._consumer.assignment import Fetch, Partition
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.dead_letters import Produce
from anabranch.client._consumer.gaps import BYTES_MAX, read, written
from anabranch.client._consumer.group_offsets import Position
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Batch, Lost, Message, parts_of, raise_lost
from anabranch.client._consumer.ordered import RETRY_S, OrderedConsumer
from anabranch.client._consumer.resources import Offsets
from anabranch.client._errors import DeadlineError, SessionLapsedError
from anabranch.client._settings import ConsumerSettings
from anabranch.client._stream.letters import Letters
from anabranch.client._stream.part import RunPart
from anabranch.client._stream.run import Run
from anabranch.client._stream.running import RunsByKey
from anabranch.client._stream.settings import RunSettings
from anabranch.core.errors import InvalidInputError
from anabranch.wire.anabranch_pb2 import ScalableConsumerType


class StreamConsumer(OrderedConsumer, RunsByKey):
    """Receives each bucket's messages in order, beside the subscription's other consumers.

    An acknowledgement stands for everything before it in the same bucket. The consumer commits it
    to Kafka in the background within `commit_interval_s`, or at once if somebody waits for it.
    `flush` waits for the commit.

    A bucket moves when all received of it is acknowledged. It moves earlier if its consumer ends,
    its session lapses or `settle_timeout_s` is over. Then the rest is delivered again.
    """

    _kind = ScalableConsumerType.STREAM
    _skips_gone = True
    part: RunPart | None = None  # of a run

    def __init__(
        self, membership: Membership, settings: ConsumerSettings, produce: Produce
    ) -> None:
        super().__init__(membership, settings)
        self._produce = produce
        self._drain_s = settings.settle_s
        self._maps_refused = 0
        self._map_bytes_max = BYTES_MAX

    def acknowledge(self, received: Message | Batch) -> None:
        """Notes that everything up to this message or batch has been processed.

        Raises BucketLostError if one of its buckets was taken away before. Messages of that bucket
        that were not acknowledged are delivered again, perhaps to another consumer. The rest is
        acknowledged all the same.
        """
        self._home.check()
        self._must_not_run()
        raise_lost(self.note_acknowledged((s.holding, end) for s, end in parts_of(received)))

    def acknowledge_all(self) -> None:
        """Notes that all received messages have been processed.

        Raises BucketLostError, once, if a bucket was lost before. The rest is acknowledged.
        """
        self._home.check()
        self._must_not_run()
        raise_lost(self.note_all_acknowledged())

    def note_all_acknowledged(self) -> list[Lost]:
        """Notes that all received messages are done with. Returns the lost buckets, each once."""
        return [*self.note_acknowledged(list(self._delivered())), *self.take_lost()]

    def join(self, run: Run, settled: Callable[[], None] | None = None) -> RunPart:
        """Takes part in a run. It calls `settled` after each attempt."""

        def done_and_settled(holding: Holding, now: float) -> None:
            self._note_done(holding, now)
            if settled is not None:
                settled()

        done = self._note_done if settled is None else done_and_settled
        letters = Letters((self.topic, self.subscription), self._produce, lambda: self.dead_letter)
        run.counts.maps_refused += self._maps_refused
        self.part = run.join(self._core, self._reading, letters, self._logger, done, self._check)
        return self.part

    @property
    def _has_received(self) -> bool:
        return self._current is not None or self.in_flight

    def _may_run(self, settings: RunSettings) -> None:
        if settings.retry.then == "dead_letter" and self.dead_letter is None:
            raise InvalidInputError(
                f"subscription {self.subscription} of {self.topic} has no dead letters: subscribe "
                "with dead_letter=DeadLetterPolicy()"
            )

    def _join_run(self, run: Run) -> None:
        self._readable.listener = functools.partial(run.changed, self.join(run))

    def _part_failed(self, part: RunPart, error: Exception) -> None:
        raise error

    def _taken(self) -> Batch | None:
        self._must_not_run()
        return super()._taken()

    async def _close(self) -> None:
        """Cancels what runs, and leaves, as every ordered consumer does."""
        part = self.part
        if part is not None:
            await part.cancel()
        try:
            await super()._close()
        finally:
            if part is not None:
                await part.letters.close()

    async def flush(self, timeout_s: float = 10.0) -> None:
        """Returns once all acknowledgements are committed.

        Raises DeadlineError, and SessionLapsedError after a lapse, even one before the call.
        """
        self._home.check()
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
                "acknowledged was committed: the rest is delivered again; look at its nodes"
            )

    def _delivered(self) -> Iterator[tuple[Holding, int]]:
        for holding in self._core.holdings.values():
            if holding.is_held and holding.delivered is not None:
                yield holding, holding.delivered

    async def _positions(self, group: Offsets, fetches: list[Fetch]) -> dict[int, int]:
        found = {fetch.partition: fetch.otherwise for fetch in fetches}
        committed, unknown = await group.committed(found)
        found |= {place: each.offset for place, each in committed.items()}
        for fetch in fetches:
            holding = self._core.fetches.get(fetch.number)
            if holding is not None and fetch.partition not in committed:
                holding.commits_again = found[fetch.partition] > 0  # Kafka does not know of it
        mapped = {place for place, each in committed.items() if each.map}
        begun = [
            place
            for place, at in found.items()
            if (at > 0 or place in mapped) and place not in unknown
        ]
        ranges, lost = await group.ranges(begun)
        self._reading.refused(unknown | lost, "to find out where to read")
        for partition, (first, end) in ranges.items():
            self._note_map(fetches, partition, committed.get(partition), end)
            if not first <= found[partition] <= end:
                # Retention has removed it, or Kafka has lost it. All that is left is read, and
                # nothing passed over.
                self._logger.warning(
                    "consumer.position_gone",
                    kafka_topic=partition[0],
                    bucket=partition[1],
                    position=found[partition],
                    first=first,
                    end=end,
                )
                found[partition] = first
        return {
            fetch.number: found[fetch.partition]
            for fetch in fetches
            if fetch.partition not in unknown | lost
        }

    def _note_map(
        self, fetches: list[Fetch], partition: Partition, told: Position | None, end: int
    ) -> None:
        """Notes what is done above a bucket's position, for whoever works on it in any order."""
        assignment = self._core.assignment
        if told is None or not told.map or assignment is None:
            return
        done = read(told.map, assignment.group_id, partition, told.offset, end)
        if done is None:
            self._maps_refused += 1
            if self.part is not None:
                self.part.counts.maps_refused += 1
            self._logger.warning(
                "consumer.map_refused",
                kafka_topic=partition[0],
                bucket=partition[1],
                position=told.offset,
            )
            return
        for fetch in fetches:
            holding = self._core.fetches.get(fetch.number)
            if holding is not None and fetch.partition == partition:
                holding.done_above = told.offset, done

    def _position_of(self, holding: Holding, end: int) -> Position:
        """Returns the position to commit now. A map belongs to the watermark of that moment."""
        assignment = self._core.assignment
        gaps = None if self.part is None else holding.work_apart()
        if gaps is None or assignment is None:
            return Position(end)
        gaps.saving, gaps.bytes_max = gaps.version, self._map_bytes_max
        return Position(gaps.watermark, written(gaps, assignment.group_id, holding.partition))

    def _without_large_maps(
        self, refused: Mapping[Partition, KafkaError], wanted: Mapping[Partition, Position]
    ) -> dict[Partition, KafkaError]:
        """Makes maps smaller if an operator has Kafka take less, and returns the other refusals."""
        large = {p for p, e in refused.items() if e.code() == KafkaError.OFFSET_METADATA_TOO_LARGE}
        if large and self._map_bytes_max and any(wanted[place].map for place in large):
            self._map_bytes_max //= 2
            self._commit_at = 0.0
            self._logger.warning(
                "consumer.map_bound",
                bytes_max=self._map_bytes_max,
                remedy="raise offset.metadata.max.bytes of Kafka to 4096",
            )
            return {place: error for place, error in refused.items() if place not in large}
        return dict(refused)

    async def _commit(self, group: Offsets, offsets: list[tuple[Holding, int]]) -> None:
        wanted = {holding.partition: self._position_of(holding, end) for holding, end in offsets}
        map_bytes = sum(len(each.map) for each in wanted.values())
        if map_bytes and self.part is not None:
            self._commit_at = max(self._commit_at, self.part.spend(map_bytes))
        committed, refused = await group.commit(wanted, self._core.commits_until())
        refused = self._without_large_maps(refused, wanted)
        self._reading.refused(refused, "to commit")
        now = self._now()
        for holding, _ in offsets:
            end = wanted[holding.partition].offset
            # Nothing of a topic that is gone is ever delivered again.
            gone = holding.partition in refused and self._reading.trouble.is_gone(
                holding.kafka_topic
            )
            if holding.partition in committed:
                self._reading.trouble.found(holding.kafka_topic)
            if gone or holding.partition in committed:
                self._core.on_committed(holding, end, now)
        if refused:
            await asyncio.sleep(RETRY_S)
