"""A queue consumer, simulated: its real decisions, and an application that settles each message."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.client._consumer.assignment import Holding
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._queue.core import QueueCore
from anabranch.client._queue.messages import ACCEPT, RELEASE, Delivery
from anabranch.client._queue.turns import Pace, Turns, hold_s
from anabranch.core.entities.subscription import SubscriptionKind
from simulation.consumers import CLOSE_S, Consumer
from simulation.scheduler import Action
from simulation.segment_store import TIMEOUT_S, Place
from simulation.share_groups import LOCK_S, Given, ShareGroup
from simulation.watch import Watch

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

WATCH_S = 0.4
MESSAGES_MAX = 20
RELEASED = 0.05  # of what an application is given it can do nothing with now


class QueueReader(Consumer):
    """One consumer of a queue subscription, with one member of its share group at a time."""

    kind = SubscriptionKind.QUEUE

    def __init__(
        self, world: TopicWorld, topic: str, subscription: str, name: str, rate: float
    ) -> None:
        self._share_group: ShareGroup = world.queues[topic, subscription]
        super().__init__(world, topic, subscription, name, rate)

    def _made_core(self) -> ConsumerCore:
        core = ConsumerCore(settle_s=0.0)
        self._queue = QueueCore(core)
        self._turns = Turns(hold_s(LOCK_S), Pace(MESSAGES_MAX), self.local_now())
        self._watch = Watch(self._world, self.topic)
        self._watch_at = 0.0
        self._wanted: tuple[str, ...] = ()
        self._member = 0  # its number, if there is one
        self._asking = False
        self._has_left = False
        self._delivery: Delivery | None = None
        self._done: list[float] = []  # when the application is through with each of these
        self._answers: list[tuple[Given, int]] = []  # which Kafka was not told yet
        return core

    def _close(self) -> None:
        """It leaves the group before it says goodbye."""
        self._close_by = self.local_now() + CLOSE_S
        self._act()

    def _may_leave(self) -> bool:
        return self._has_left and self.core.holds_nothing

    def serving(self) -> dict[Place, Holding]:
        """Nothing alone."""
        return {}

    def wake_for(self, place: Place) -> None:
        if place[0] in self._wanted and self._delivery is None and not self._asking:
            self.wake()

    # --- what is to be read ---------------------------------------------------------------

    def _deliver(self, now: float) -> None:
        if self._watch_at <= now:
            self._watch_at = now + WATCH_S
            self._watch.look()
        self._queue.group_id = self._queue.group_id or self.group
        if self._queue.group_id and self._close_by is None:
            self._wanted = tuple(sorted(dict(self._queue.segments(self._watch.layout))))

    def _work(self, now: float) -> None:
        """The application settles one message after the other."""
        delivery = self._delivery
        for index, done_at in enumerate(self._done):
            if delivery is not None and done_at <= now:
                self._done[index] = float("inf")
                accepted = self._sched.rng.random() >= RELEASED
                if delivery.acknowledge(index, ACCEPT if accepted else RELEASE) and accepted:
                    self._share_group.processed(_given(delivery)[index])

    def _commit(self, now: float) -> None:
        """A turn of the member."""
        if self._member:
            self._share_group.alive(self._member)
        if self._asking:
            return
        if self._delivery is not None and not self._ended(self._delivery, now):
            return
        if self._close_by is not None:
            self._leave_group(self._left)
        elif self._turns.is_to_poll(self._wanted, asked=True, is_awaited=True):
            if not self._member:
                self._member = self._world.new_number()
                self._turns.joined()
            if self._turns.is_to_subscribe(self._wanted, now):
                topics = self._turns.subscription(self._wanted, now)
                self._share_group.subscribe(self._member, topics)
            self._poll(now)

    # --- the member ---------------------------------------------------------------------

    def _poll(self, now: float) -> None:
        found: list[Given] = []
        number, most = self._member, self._turns.pace.records
        answers = self._taken_along()

        def act() -> None:
            self._share_group.answer(number, answers)
            found.extend(self._share_group.fetch(number, most))

        def polled(in_time: bool) -> None:
            given = found[:] if in_time else []
            ended = self.local_now()
            self._turns.pace.asked(ended - now)
            if given:
                self._take(given, now + hold_s(LOCK_S))
            self._turns.polled(ended)

        self._ask(act, polled)

    def _take(self, given: list[Given], hold_until: float) -> None:
        messages: Any = given
        self._delivery = Delivery(messages, hold_until=hold_until)
        at = self.local_now()
        self._done = []
        for each in given:
            self._share_group.delivered(each)
            at += self._world.working_s()
            self._done.append(at)

    def _ended(self, delivery: Delivery, now: float) -> bool:
        """Whether a delivery is over, and another one may be asked for at once."""
        if self._close_by is not None:
            delivery.acknowledge_open(len(delivery.messages), RELEASE)
        in_time = delivery.wait(0.0)
        if not in_time and now < delivery.hold_until:
            return False
        answers, _ = delivery.end()
        self._answers = list(zip(_given(delivery), answers, strict=True))
        self._turns.unsent = True
        self._delivery, self._done = None, []
        if self._turns.pace.ended(in_time, len(answers), now) and self._close_by is None:
            self._leave_group(lambda _: None)
            return False
        return True

    def _leave_group(self, then: Any) -> None:
        number, self._member = self._member, 0
        answers = self._taken_along()

        def act() -> None:
            self._share_group.answer(number, answers)
            self._share_group.leave(number)

        self._ask(act, then)

    def _left(self, _in_time: bool) -> None:
        self._has_left = True
        self.core.close(self.local_now())

    def _taken_along(self) -> list[tuple[Given, int]]:
        answers, self._answers = self._answers, []
        self._turns.unsent = False
        return answers

    def _ask(self, act: Action, then: Any) -> None:
        self._asking = True
        life = self.life

        def reply(in_time: bool) -> None:
            self._asking = False
            then(in_time)
            if self.alive and self._delivery is not None:
                self.wake()

        # Kafka takes a connection's requests in order, and soon: none overtakes a later one.
        self._world.store.call(
            lambda in_time: self.run_in(life, partial(reply, in_time)),
            act,
            late_s_max=TIMEOUT_S / 2,
        )


def _given(delivery: Delivery) -> list[Given]:
    found: Any = delivery.messages
    return list(found)
