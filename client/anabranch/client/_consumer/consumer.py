"""`Consumer`: the common part of ordered and queue consumers: a session, tasks, and failures."""

from __future__ import annotations

import asyncio
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from anabranch.client._aio import MessageT, Receiving, Tasks
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Loss
from anabranch.client._consumer.resources import OWN, ConsumerResources
from anabranch.client._consumer.session import ConsumerSession, Identity
from anabranch.client._errors import ClosedError, TopicNotFoundError
from anabranch.client._settings import DeadLetterPolicy
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core import names
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import ScalableConsumerType
from anabranch.wire.logging import get_logger
from anabranch.wire.supervised import supervised

LEAVE_S_MAX: Final = 5.0


class Membership(msgspec.Struct, frozen=True):
    """Names one consumer of a subscription, and its ways to the nodes and (`kafka`) to Kafka.

    An empty name becomes a new one. The consumer calls `on_readable` whenever there may be a
    message to take or a failure to see.
    """

    nodes: Nodes
    watch: LayoutWatch
    kafka: Mapping[str, Any]
    subscription: str
    consumer_name: str
    resources: ConsumerResources = OWN
    on_readable: Callable[[], None] | None = None


class Signal(asyncio.Event):
    """An event that also tells a listener."""

    def __init__(self, listener: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.listener = listener

    def set(self) -> None:
        super().set()
        if self.listener is not None:
            self.listener()


class Consumer(Receiving[MessageT]):
    """One consumer of a subscription, on one event loop.

    Every event sets `_poke`, for the task that drives, and `_readable`, for callers that wait.
    """

    _kind: ScalableConsumerType

    def __init__(
        self,
        membership: Membership,
        core: ConsumerCore,
        start_ms: int,
        dead_letter: DeadLetterPolicy | None = None,
    ) -> None:
        watch, name = membership.watch, membership.consumer_name
        self.topic = watch.topic
        self.subscription = names.subscription(membership.subscription)
        self.consumer_name = names.consumer(name or f"consumer-{secrets.token_hex(8)}")
        self._lives_here(f"consumer {self.consumer_name} of {self.topic}")
        self._is_closing = False
        self._kafka = membership.kafka
        self._now: Callable[[], float] = clock.now
        self._watch = watch
        self._core = core
        who = Identity(
            self.topic,
            self.subscription,
            self.consumer_name,
            secrets.randbits(63),
            self._kind,
            start_ms,
            dead_letter,
        )
        self._session = ConsumerSession(
            core, who, membership.nodes, watch, self._now, self._changed
        )
        self._tasks = Tasks(self._task_failed)
        self._poke = asyncio.Event()
        self._readable = Signal(membership.on_readable)
        self._failure: BaseException | None = None
        self._is_committing = False
        self._keeps_share = False  # set by `close`
        self._leaving: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._logger = get_logger(__name__).bind(
            topic=self.topic, subscription=self.subscription, consumer=self.consumer_name
        )

    async def close(self, *, keep_share: bool = False) -> None:
        """Leaves the subscription, as each kind of consumer describes. Later calls wait for the
        same end.

        With `keep_share` only a consumer of the same name may have its share during the grace. A
        cancelled call does not stop the closing: half closed, the consumer would keep its share and
        read nothing.
        """
        self._home.check()
        if self._closing is None:
            if self._is_closing:
                return  # it was never subscribed
            self._is_closing, self._keeps_share = True, keep_share
            self._closing = asyncio.create_task(self._close(), name="consumer close")
        await asyncio.shield(self._closing)

    @property
    def is_closed(self) -> bool:
        """True once nothing of it is left to close."""
        return self._is_closing and (self._closing is None or self._closing.done())

    @property
    def dead_letter(self) -> DeadLetterPolicy | None:
        """The subscription's dead-letter policy, None for none."""
        assignment = self._core.assignment
        return None if assignment is None else assignment.dead_letter

    @property
    def dead_letters_waiting(self) -> int:
        """The number of its messages that could not be put aside so far. It goes on trying."""
        return self._core.dead_letters_waiting

    @abstractmethod
    async def start(self) -> Self:
        """Subscribes. Raises the errors of `ConsumerSession.start`, such as ConsumerBusyError."""

    @abstractmethod
    async def _close(self) -> None:
        """Ends all parts of the consumer."""

    @abstractmethod
    async def receive(self, timeout_s: float | None = None) -> MessageT:
        """Returns the next message. Raises DeadlineError after `timeout_s` seconds, ClosedError, or
        the error of a failed consumer.
        """

    @property
    @abstractmethod
    def _read_failure(self) -> BaseException | None:
        """Returns the reason why nothing can be read any more, None if reading goes on."""

    @abstractmethod
    def _layout_changed(self, layout: TopicLayout) -> None:
        """Listens to the watch, from `start` to `close`."""

    async def _subscribe(self, timeout_s: float) -> None:
        """Subscribes and prepares.
        After an error of `ConsumerSession.start` or `_prepare` it has closed everything.
        """
        try:
            await self._session.start(timeout_s)
            await self._prepare(timeout_s)
        except BaseException:
            self._is_closing = True
            await self._session.close(0.1)
            await self._watch.close()
            raise

    async def _prepare(self, timeout_s: float) -> None:
        """Prepares the reading, once the subscription is known."""

    async def _leave(self) -> None:
        """Says goodbye, unless a failure has made that needless."""
        if self._leaving is not None:
            await self._leaving
        await self._session.close(LEAVE_S_MAX, keeps_share=self._keeps_share)

    def _stop_listening(self) -> None:
        if self._layout_changed in self._watch.listeners:
            self._watch.listeners.remove(self._layout_changed)

    def _check(self) -> None:
        if self._watch.layout.deleted:
            raise TopicNotFoundError(
                f"{names.full_name(self.topic)} was deleted: create it, and subscribe anew"
            )
        failure = self._failure or self._session.failure or self._read_failure
        if failure is not None:
            raise failure
        if self._is_closing:
            raise ClosedError(
                f"consumer {self.consumer_name} of {self.topic} was closed: subscribe anew"
            )

    def _changed(self) -> None:
        self._poke.set()
        self._readable.set()

    def _task_failed(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._logger.error("consumer.failed", why=repr(error))
        self._core.give_up(Loss.FAILED)  # nothing is served any more: others shall have the share
        if self._is_committing:
            self._session.stop()  # it may be carried out yet: nobody is to start before it
        elif self._leaving is None:
            self._leaving = supervised(self._session.close(LEAVE_S_MAX), "consumer leave")
        self._changed()
