"""The SDK without asyncio, for scripts. Each object has the same name here, and its calls wait.

    with Client("pulsar://127.0.0.1:6650") as client:
        producer = client.create_producer("topic://public/default/orders")
        producer.send(b"value", key="key")
        for message in client.subscribe("topic://public/default/orders", "billing"):
            ...

Methods have the arguments and results of the asynchronous ones; a test holds them equal. The event
loop runs on a thread of its own, so several threads may use the objects. Each call costs two
changes of thread. Use `send_many` and `receive_many` for many messages.

Callbacks such as `on_delivery` run on that thread, where nothing may wait for the loop. The objects
refuse every call there. Ctrl-C cancels the call that it interrupts. Closing the client ends the
calls of other threads with ClosedError.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from anabranch.access import Credentials, Tls
from anabranch.access.kafka_tokens import TokenSource
from anabranch.client import _client as client
from anabranch.client._consumer import checkpoint as checkpoints
from anabranch.client._consumer.consumer import Consumer
from anabranch.client._consumer.messages import Message
from anabranch.client._consumer.ordered import OrderedConsumer
from anabranch.client._consumer.running import begin_stop
from anabranch.client._errors import ClosedError
from anabranch.client._face import Face, LoopThread, calls, makes, waits
from anabranch.client._many import consumer as many
from anabranch.client._producer import producer
from anabranch.client._queue import consumer as queue
from anabranch.client._queue.messages import QueueMessage
from anabranch.client._settings import DeadLetterPolicy, ProducerSettings
from anabranch.client._stream import consumer as stream
from anabranch.client._stream.handler_threads import is_handler_thread
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.topic_list import TopicSelection

__all__ = [
    "CheckpointConsumer",
    "Client",
    "PositionOf",
    "Producer",
    "QueueConsumer",
    "StreamConsumer",
    "StreamTopicsConsumer",
]

PositionOf = checkpoints.PositionOf

AnyConsumer = Consumer[Any] | many.StreamTopicsConsumer
ConsumerT = TypeVar("ConsumerT", bound=AnyConsumer)
SingleT = TypeVar("SingleT", bound=Consumer[Any])
OrderedT = TypeVar("OrderedT", bound=OrderedConsumer)
MessageT = TypeVar("MessageT")


class Producer(Face[producer.Producer]):
    """Sends messages to a scalable topic, each key in order. `Client.create_producer` makes it.

    The loop's thread iterates the argument of `send_many`, and calls `on_delivery`.
    """

    @property
    def settings(self) -> ProducerSettings:
        """The settings that it was made with."""
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
        """The number of messages that are not settled yet."""
        return self._part.under_way

    @property
    def sequence(self) -> int:
        """The number up to which all messages of a producer with a name are stored."""
        return self._part.sequence

    @property
    def is_closed(self) -> bool:
        return self._part.is_closed

    send = waits(producer.Producer.send)
    post = waits(producer.Producer.post)
    send_nowait = calls(producer.Producer.send_nowait)
    send_many = waits(producer.Producer.send_many)
    room = waits(producer.Producer.room)
    flush = waits(producer.Producer.flush)
    stats = calls(producer.Producer.stats)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes and ends the producer.
        It gives up messages that are not delivered within `timeout_s` seconds.
        """
        if not self._thread.is_over:
            self._thread.wait(self._part.close, timeout_s)


class _Consumer(Face[ConsumerT], Generic[ConsumerT, MessageT]):
    """The common part of all kinds of consumers.
    It is an iterator of messages, which ends at `close`.
    """

    @property
    def subscription(self) -> str:
        return self._part.subscription

    @property
    def consumer_name(self) -> str:
        return self._part.consumer_name

    @property
    def is_closed(self) -> bool:
        """True once nothing of it is left to close."""
        return self._part.is_closed

    def close(self, *, keep_share: bool = False) -> None:
        """Closes the consumer as the asynchronous one does.
        It does nothing once the client is closed.
        """
        if not self._thread.is_over:
            self._thread.wait(self._part.close, keep_share=keep_share)

    def receive(self, timeout_s: float | None = None) -> MessageT:
        """Returns the next message. Raises DeadlineError after `timeout_s` seconds, ClosedError, or
        the error of a failed consumer.
        """
        found: MessageT = self._thread.wait(self._part.receive, timeout_s)
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageT:
        try:
            return self.receive()
        except ClosedError:
            raise StopIteration from None


class _TopicConsumer(_Consumer[SingleT, MessageT]):
    """A consumer of one topic."""

    @property
    def topic(self) -> str:
        """`tenant/namespace/name`."""
        return self._part.topic

    @property
    def dead_letter(self) -> DeadLetterPolicy | None:
        """The subscription's dead-letter policy, None for none."""
        return self._part.dead_letter

    @property
    def dead_letters_waiting(self) -> int:
        """The number of its messages that could not be put aside so far. It goes on trying."""
        return self._part.dead_letters_waiting


class _OrderedConsumer(_TopicConsumer[OrderedT, Message]):
    """The common part of stream and checkpoint consumers."""

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """The buckets that it was given: segment ids with bucket numbers, sorted."""
        return self._thread.call(lambda: self._part.buckets)

    receive_many = waits(OrderedConsumer.receive_many)


class _Stops:
    """The common part of consumers that run a handler."""

    _thread: LoopThread
    _part: Any

    def stop(self, drain_s: float | None = None) -> None:
        """Ends `run`: starts nothing more, waits for what runs, then closes the consumer. In a
        handler it returns at once, and the rest follows.

        After `drain_s` seconds it cancels what still runs; unless given, after `settle_timeout_s`
        of a stream, and never of a queue.
        """
        part = self._part
        if is_handler_thread():
            self._thread.call(begin_stop, part, drain_s)
        else:
            self._thread.wait(type(part).stop, part, drain_s)


class StreamConsumer(_Stops, _OrderedConsumer[stream.StreamConsumer]):
    """Receives each bucket's messages in order. `Client.subscribe` makes it."""

    acknowledge = calls(stream.StreamConsumer.acknowledge)
    acknowledge_all = calls(stream.StreamConsumer.acknowledge_all)
    flush = waits(stream.StreamConsumer.flush)
    run = waits(stream.StreamConsumer.run)
    run_batches = waits(stream.StreamConsumer.run_batches)
    blocked = calls(stream.StreamConsumer.blocked)
    stats = calls(stream.StreamConsumer.stats)


class CheckpointConsumer(_OrderedConsumer[checkpoints.CheckpointConsumer]):
    """Receives each bucket's messages in order, from the caller's positions.
    `Client.subscribe_checkpoint` makes it.
    """

    checkpoint = calls(checkpoints.CheckpointConsumer.checkpoint)
    saved = calls(checkpoints.CheckpointConsumer.saved)


class QueueConsumer(_Stops, _TopicConsumer[queue.QueueConsumer, QueueMessage]):
    """Receives single messages, and the caller settles each. `Client.subscribe_queue` makes it."""

    @property
    def segments(self) -> list[int]:
        """The ids of the segments that it consumes, sorted."""
        return self._thread.call(lambda: self._part.segments)

    receive_many = waits(queue.QueueConsumer.receive_many)
    acknowledge = calls(queue.QueueConsumer.acknowledge)
    acknowledge_all = calls(queue.QueueConsumer.acknowledge_all)
    release = calls(queue.QueueConsumer.release)
    reject = calls(queue.QueueConsumer.reject)
    run = waits(queue.QueueConsumer.run)


class StreamTopicsConsumer(_Consumer[many.StreamTopicsConsumer, Message], _Stops):
    """A stream consumer over many topics. `Client.subscribe_topics` makes it."""

    @property
    def selection(self) -> TopicSelection:
        """The selection of topics that it consumes."""
        return self._part.selection

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted: `tenant/namespace/name`."""
        return self._thread.call(lambda: self._part.topics)

    @property
    def failing(self) -> dict[str, str]:
        """Topics whose subscription failed, with the reason. The consumer tries them again."""
        return self._thread.call(lambda: self._part.failing)

    receive_many = waits(many.StreamTopicsConsumer.receive_many)
    acknowledge = calls(many.StreamTopicsConsumer.acknowledge)
    acknowledge_all = calls(many.StreamTopicsConsumer.acknowledge_all)
    flush = waits(many.StreamTopicsConsumer.flush)
    run = waits(many.StreamTopicsConsumer.run)
    run_batches = waits(many.StreamTopicsConsumer.run_batches)
    blocked = calls(many.StreamTopicsConsumer.blocked)
    stats = calls(many.StreamTopicsConsumer.stats)


class Client(Face[client.Client]):
    """A cluster, named by the URL of one or several of its nodes, as `anabranch.client.Client` is.

    Closing it closes all objects that it made, and ends its thread.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        kafka: Mapping[str, Any] | Path | str | None = None,
        kafka_token: TokenSource | None = None,
    ) -> None:
        made = client.Client(
            url, tls=tls, credentials=credentials, kafka=kafka, kafka_token=kafka_token
        )
        super().__init__(made, LoopThread(f"the client of {url}"))
        made._home.opened(self)

    create_producer = makes(client.Client.create_producer, Producer)
    subscribe = makes(client.Client.subscribe, StreamConsumer)
    subscribe_checkpoint = makes(client.Client.subscribe_checkpoint, CheckpointConsumer)
    subscribe_queue = makes(client.Client.subscribe_queue, QueueConsumer)
    subscribe_topics = makes(client.Client.subscribe_topics, StreamTopicsConsumer)
    peek = waits(client.Client.peek)

    def close(self) -> None:
        """Closes all objects that it made, and ends its thread. A second call does nothing."""
        try:
            super().close()
        finally:
            self._thread.stop()

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        finally:
            self._thread.stop()
