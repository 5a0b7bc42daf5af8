"""`Face`: an object of the SDK whose calls wait, by an event loop on another thread (`LoopThread`).

Each class has the name, and its methods the arguments and results, of the asynchronous one; a test
holds them equal.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from anabranch.client._aio import Closing
from anabranch.client._consumer import checkpoint as checkpoints
from anabranch.client._consumer import stream
from anabranch.client._consumer.consumer import Consumer
from anabranch.client._consumer.messages import Batch, Message
from anabranch.client._consumer.stream import OrderedConsumer
from anabranch.client._errors import ClosedError
from anabranch.client._producer import producer
from anabranch.client._producer.messages import DeliveryResult, Headers, OnDelivery
from anabranch.client._producer.segment_writer import BatchStats
from anabranch.client._queue import consumer as queue
from anabranch.client._queue.messages import QueueBatch, QueueMessage
from anabranch.client._settings import DeadLetterPolicy, ProducerSettings
from anabranch.client._topics import watch as layout_watch
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError

P = ParamSpec("P")
T = TypeVar("T")

_STOP_S_MAX: Final = 10.0


class LoopThread:
    """Runs functions on its loop for other threads; a daemon: it ends with the process at last."""

    def __init__(self) -> None:
        self.is_over = False
        self._loop = asyncio.new_event_loop()
        self._submitting = threading.Lock()  # no call may come after the loop's last turn
        self._thread = threading.Thread(target=self._run, name="anabranch-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()  # at its end the runner cancels what is left

    def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What the function returns on the loop's thread. Raises as `wait`."""

        async def on_loop() -> T:
            return function(*args, **named)

        return self._outcome(on_loop)

    def wait(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **named: P.kwargs
    ) -> T:
        """What the coroutine function returns in the end; it is cancelled when nobody waits.

        Raises what it raises, ClosedError, and InvalidInputError on the loop's own thread.
        """

        async def on_loop() -> T:
            return await function(*args, **named)

        return self._outcome(on_loop)

    def check_elsewhere(self) -> None:
        """Raises InvalidInputError on the loop's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise InvalidInputError(
                "the synchronous SDK cannot be called in what it calls back, such as on_delivery: "
                "hand the work over to a thread of yours, for example by a queue.Queue"
            )

    def stop(self) -> None:
        """Ends the loop, and the calls that other threads wait for; again it does nothing."""
        self.check_elsewhere()
        with self._submitting:
            if not self.is_over:
                self.is_over = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S_MAX)

    def _outcome(self, on_loop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.check_elsewhere()
        outcome: Future[T] | None = None
        try:
            with self._submitting:
                if self.is_over:
                    raise ClosedError("the client was closed")
                outcome = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
            return outcome.result()
        except CancelledError:
            raise ClosedError("the client was closed") from None
        finally:
            if outcome is not None:
                outcome.cancel()  # Ctrl-C came, if it is not done: nobody waits for it any more


PartT = TypeVar("PartT", bound=Closing)
ConsumerT = TypeVar("ConsumerT", bound=Consumer[Any])
OrderedT = TypeVar("OrderedT", bound=OrderedConsumer)
MessageT = TypeVar("MessageT")


class Face(Generic[PartT]):
    """One of the SDK's objects, whose methods wait. Closes it when used as a context manager."""

    def __init__(self, part: PartT, thread: LoopThread) -> None:
        self._part = part
        self._thread = thread

    def close(self) -> None:
        """As the object's own; once the client is closed it does nothing."""
        if not self._thread.is_over:
            self._thread.wait(self._part.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._thread.is_over:
            self._thread.wait(self._part.__aexit__, kind, error, trace)


class Producer(Face[producer.Producer]):
    """Sends messages to a scalable topic, each key in order; made by `Client.create_producer`."""

    @property
    def settings(self) -> ProducerSettings:
        """What it was made with."""
        return self._part.settings

    @property
    def topic(self) -> str:
        """`topic://tenant/namespace/name`."""
        return self._part.topic

    @property
    def layout(self) -> TopicLayout:
        """The newest layout that the producer knows."""
        return self._part.layout

    @property
    def under_way(self) -> int:
        """How many messages are not settled yet."""
        return self._part.under_way

    @property
    def is_closed(self) -> bool:
        return self._part.is_closed

    def send(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int = 0,
    ) -> DeliveryResult:
        """Sends one message and waits until Kafka has it.

        Raises MessageTooLargeError, SerializationError, DeliveryError, ClosedError,
        TopicNotFoundError.
        """
        return self._thread.wait(
            self._part.send, value, key, headers=headers, event_time_ms=event_time_ms
        )

    def post(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Waits for room only; `on_delivery` hears on the loop's thread what became of it."""
        self._thread.wait(
            self._part.post,
            value,
            key,
            headers=headers,
            event_time_ms=event_time_ms,
            on_delivery=on_delivery,
        )

    def send_nowait(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """As `post`, but raises BufferFullError where there is no room."""
        self._thread.call(
            self._part.send_nowait,
            value,
            key,
            headers=headers,
            event_time_ms=event_time_ms,
            on_delivery=on_delivery,
        )

    def send_many(self, messages: Iterable[tuple[Any, Any]]) -> int:
        """Hands (key, value) pairs over, as fast as there is room; returns how many.

        They are iterated on the loop's thread. A message that fails makes the next `flush` raise.
        """
        return self._thread.wait(self._part.send_many, messages)

    def room(self) -> None:
        """Returns once a message may be sent. Raises ClosedError, TopicNotFoundError."""
        self._thread.wait(self._part.room)

    def flush(self, timeout_s: float | None = None) -> None:
        """Returns once everything sent so far is settled. Raises DeliveryError, DeadlineError."""
        self._thread.wait(self._part.flush, timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes and ends the producer; what cannot be delivered in time is given up."""
        if not self._thread.is_over:
            self._thread.wait(self._part.close, timeout_s)

    def stats(self) -> list[BatchStats]:
        """How full the batches are that it writes. Raises InvalidInputError."""
        return self._thread.call(self._part.stats)


class LayoutWatch(Face[layout_watch.LayoutWatch]):
    """Knows the newest layout of one topic; made by `Client.watch`."""

    @property
    def topic(self) -> str:
        """`tenant/namespace/name`."""
        return self._part.topic

    @property
    def layout(self) -> TopicLayout:
        """The newest layout."""
        return self._part.layout

    @property
    def is_closed(self) -> bool:
        """Whether nothing is watched any more."""
        return self._part.is_closed


class _Consumer(Face[ConsumerT], Generic[ConsumerT, MessageT]):
    """What all kinds of consumers have in common. Iterating gives messages until it is closed."""

    @property
    def topic(self) -> str:
        """`tenant/namespace/name`."""
        return self._part.topic

    @property
    def subscription(self) -> str:
        return self._part.subscription

    @property
    def consumer_name(self) -> str:
        return self._part.consumer_name

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it is left to be closed."""
        return self._part.is_closed

    def receive(self, timeout_s: float | None = None) -> MessageT:
        """The next message. Raises DeadlineError, ClosedError, or why the consumer failed."""
        found: MessageT = self._thread.wait(self._part.receive, timeout_s)
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageT:
        try:
            return self.receive()
        except ClosedError:
            raise StopIteration from None


class _OrderedConsumer(_Consumer[OrderedT, Message]):
    """What stream and checkpoint consumers have in common."""

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """What it has been given: segment ids with buckets, sorted."""
        return self._thread.call(lambda: self._part.buckets)

    def receive_many(self, messages_max: int = 1_000, timeout_s: float | None = None) -> Batch:
        """What is there, at least one message; as `receive`."""
        return self._thread.wait(self._part.receive_many, messages_max, timeout_s)


class StreamConsumer(_OrderedConsumer[stream.StreamConsumer]):
    """Receives each bucket's messages in order; made by `Client.subscribe`."""

    def acknowledge(self, received: Message | Batch) -> bool:
        """Everything up to this message, or this batch, has been processed.

        False if a bucket of it is not this consumer's any more: what was not acknowledged of that
        will be delivered again, perhaps to another consumer.
        """
        return self._thread.call(self._part.acknowledge, received)

    def acknowledge_all(self) -> bool:
        """Everything that was received so far has been processed."""
        return self._thread.call(self._part.acknowledge_all)

    def flush(self, timeout_s: float = 10.0) -> None:
        """Returns once everything that is acknowledged is committed.

        Raises DeadlineError, SessionLapsedError.
        """
        self._thread.wait(self._part.flush, timeout_s)


class CheckpointConsumer(_OrderedConsumer[checkpoints.CheckpointConsumer]):
    """Receives each bucket's messages in order, from the caller's positions.

    Made by `Client.subscribe_checkpoint`.
    """

    def checkpoint(self) -> checkpoints.Checkpoint:
        """How far each bucket is that this consumer has, to be stored by the caller."""
        return self._thread.call(self._part.checkpoint)

    def saved(self, checkpoint: checkpoints.Checkpoint) -> bool:
        """That checkpoint is stored.

        False, once, when messages that were received are received again: saved too late.
        """
        return self._thread.call(self._part.saved, checkpoint)


class QueueConsumer(_Consumer[queue.QueueConsumer, QueueMessage]):
    """Receives single messages, each to be settled; made by `Client.subscribe_queue`."""

    @property
    def segments(self) -> list[int]:
        """The ids of the segments that it consumes, sorted."""
        return self._thread.call(lambda: self._part.segments)

    def receive_many(self, timeout_s: float | None = None) -> QueueBatch:
        """What is left of the delivery that is there, at least one message. As `receive`."""
        return self._thread.wait(self._part.receive_many, timeout_s)

    def acknowledge(self, message: QueueMessage) -> bool:
        """It has been processed. False if it is too late, and will be delivered again."""
        return self._thread.call(self._part.acknowledge, message)

    def acknowledge_all(self) -> bool:
        """All that was received and is not settled has been processed; else as `acknowledge`."""
        return self._thread.call(self._part.acknowledge_all)

    def release(self, message: QueueMessage, *, delay_s: float = 0.0, error: object = None) -> bool:
        """It could not be processed now: deliver it again, to whichever consumer is free.

        Not before `delay_s`, which 0.8 of the group's lock may cut. Raises InvalidInputError.
        """
        return self._thread.call(self._part.release, message, delay_s=delay_s, error=error)

    def reject(self, message: QueueMessage, *, error: object = None) -> bool:
        """It can not be processed by anybody: never deliver it again."""
        return self._thread.call(self._part.reject, message, error=error)

    @property
    def dead_letter(self) -> DeadLetterPolicy | None:
        """What the subscription has; None for no dead letters."""
        return self._part.dead_letter
