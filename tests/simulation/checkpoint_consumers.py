"""A checkpoint consumer, simulated: the product's own, and an application that stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch import client as sdk
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.group_offsets import Answers
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.ordered import OrderedConsumer
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.errors import AnabranchError
from simulation.checkpoint_sink import Sink
from simulation.consumers import Consumer, Reader
from simulation.scheduler import ViolationError
from simulation.segment_store import Message, Place
from simulation.watch import Watch
from simulation.work import Answer, Work

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

T = TypeVar("T")

SAVE_S = 0.4


class Bare(OrderedConsumer):
    """What a consumer builds upon, without Kafka and a session: those are simulated."""

    def __init__(self, membership: Any, settings: sdk.ConsumerSettings) -> None:
        self._lives_here("a simulated consumer")
        self.topic = membership.watch.topic
        self._watch = membership.watch
        self._core = ConsumerCore(settings.settle_s)

    def _changed(self) -> None:
        pass

    def _layout_changed(self, layout: sdk.TopicLayout) -> None:
        pass


class _Own(sdk.CheckpointConsumer, Bare):
    """The product's."""


class _Ranges:
    """What a consumer asks Kafka for."""

    def __init__(self, consumer: CheckpointReader, number: int) -> None:
        self._consumer = consumer
        self._number = number

    async def ranges(self, places: Iterable[Place]) -> Answers[tuple[int, int]]:
        consumer, asked = self._consumer, list(places)
        while self._number in consumer.core.fetches:
            found = await consumer.asked(lambda: consumer.ends(asked))
            if found and None not in found[0]:
                ends = zip(asked, found[0], strict=True)
                return Answers({place: (0, end or 0) for place, end in ends}, {})
        raise sdk.ClientError("it is not read any more")


class CheckpointReader(Consumer):
    """One consumer of a checkpoint subscription; its name's processes share a sink with all."""

    kind = SubscriptionKind.CHECKPOINT

    def __init__(
        self, world: TopicWorld, topic: str, subscription: str, name: str, rate: float, sink: Sink
    ) -> None:
        self._sink = sink
        super().__init__(world, topic, subscription, name, rate)

    def _made_core(self) -> ConsumerCore:
        self._watch = Watch(self._world, self.topic)
        self._fresh: list[tuple[Holding, int, Message]] = []  # delivered, and not stored
        self._busy_until = self._save_at = 0.0
        self._saving = False
        anywhere: Any = None
        watch: Any = self._watch
        membership = Membership(anywhere, watch, {}, self.subscription, self.name)
        settings = sdk.ConsumerSettings(settle_timeout_s=self._world.plan.settle_s)
        self._is_misled = False  # by positions that came late to the sink
        self._saves = 0  # of anybody, when it read what was stored, and its own since
        if self._sink.whole:
            self._own = _Own(membership, settings, self._stored_checkpoint())
        else:
            self._own = _Own(membership, settings, position_of=self._position_of)
        self._own._now = self.local_now
        return self._own._core

    def _stored_checkpoint(self) -> sdk.Checkpoint | None:
        topic = self._world.cluster.checks.truth.topic(self.topic)
        if topic is None or not self._sink.positions:
            return None
        self._is_misled, self._saves = self._sink.is_late(topic), self._sink.saves
        found: dict[int, dict[int, int]] = {}
        for (segment_id, bucket), offset in self._sink.positions.items():
            found.setdefault(segment_id, {})[bucket] = offset
        return sdk.Checkpoint(topic.incarnation, found)

    async def _position_of(self, segment_id: int, bucket: int) -> int | None:
        while True:
            found = await self.asked(lambda: self._position(segment_id, bucket))
            if found:
                return found[0]

    def _position(self, segment_id: int, bucket: int) -> int | None:
        self._is_misled |= self._sink.is_behind((segment_id, bucket))
        return self._sink.positions.get((segment_id, bucket))

    def asked(self, question: Callable[[], T]) -> Answer[list[T]]:
        """Its answer in time, or an empty list."""
        answer: Answer[list[T]] = Answer()
        found: list[T] = []
        life = self.life

        def reply(in_time: bool) -> None:
            self.run_in(life, partial(answer.give, found[:] if in_time else []))

        self._world.store.call(reply, lambda: found.append(question()))
        return answer

    def ends(self, places: list[Place]) -> list[int | None]:
        """Of each partition that is there."""
        found = (self._world.store.partitions.get(place) for place in places)
        return [len(each.messages) if each is not None else None for each in found]

    # --- reading ------------------------------------------------------------------------

    def _ask_position(self, number: int, reader: Reader) -> None:
        fetch = reader.holding.fetch
        if reader.asking or fetch is None:
            return
        reader.asking = True
        ranges: Any = _Ranges(self, number)
        Work(self._own._positions(ranges, [fetch]), partial(self._begins, number, reader))

    def _begins(
        self,
        number: int,
        reader: Reader,
        found: dict[int, int] | None,
        error: AnabranchError | None,
    ) -> None:
        if found is not None:
            self._positioned(number, reader, found[number])
        elif number in self.core.fetches:
            # Another process of the name may have stored more before this one was let in.
            is_overtaken = self._sink.whole and self._sink.saves > self._saves
            is_misled = self._is_misled or is_overtaken
            if not isinstance(error, sdk.PositionGoneError) or not is_misled:
                raise ViolationError(f"{self} cannot begin: {error}")
            self._sink.catch_up()
            self._world.cluster.sched.after(0.0, partial(self.begin_anew, "was told of a gap"))

    def _taken(
        self, holding: Holding, place: Place, end: int, message: Message, now: float
    ) -> None:
        self._sink.delivered(message, place)
        working_s = self._world.working_s()
        if not self._fresh:  # what comes meanwhile keeps it from storing no longer
            self._busy_until = now + working_s
        self._fresh.append((holding, end, message))

    # --- storing ------------------------------------------------------------------------

    def _work(self, now: float) -> None:
        """When it is through with everything that it was given, it stores that."""
        if self._saving or not self._fresh or now < max(self._busy_until, self._save_at):
            return
        if self._watch.look():
            self._own._layout_changed(self._watch.layout)
        self._saving, self._save_at = True, now + SAVE_S
        checkpoint = self._own.checkpoint()
        messages = [
            message
            for holding, end, message in self._fresh
            if end <= (checkpoint.position(*holding.place) or 0)
        ]
        self._fresh = []
        self._store(checkpoint, messages)

    def _store(self, checkpoint: sdk.Checkpoint, messages: list[Message]) -> None:
        """Until it is known to be stored."""
        stored = partial(self._stored, checkpoint, messages)
        life = self.life
        self._world.store.call(
            lambda in_time: self.run_in(life, partial(stored, in_time)),
            partial(self._sink.store, checkpoint, messages),
        )

    def _stored(self, checkpoint: sdk.Checkpoint, messages: list[Message], in_time: bool) -> None:
        if in_time:
            self._saving = False
            self._saves += 1
            with contextlib.suppress(sdk.BucketLostError):
                self._own.saved(checkpoint)
            self.wake()
        else:
            self._store(checkpoint, messages)

    def _commit(self, now: float) -> None:
        """Nothing is committed to Kafka."""
