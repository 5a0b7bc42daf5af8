"""`Client`: the way into a cluster; makes producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, Unpack

from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaClient

from anabranch.access import Credentials, Tls
from anabranch.access.home import Home
from anabranch.client._aio import Closing
from anabranch.client._consumer import peek as peeking
from anabranch.client._consumer.checkpoint import Checkpoint, CheckpointConsumer, PositionOf
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.messages import Message
from anabranch.client._consumer.stream import StreamConsumer
from anabranch.client._errors import HOME_ERRORS, ClosedError
from anabranch.client._many.consumer import TopicsSubscription
from anabranch.client._many.ordered import (
    CheckpointTopicsConsumer,
    StreamTopicsConsumer,
    TopicsCheckpoint,
    TopicsPositionOf,
)
from anabranch.client._many.queue import QueueTopicsConsumer
from anabranch.client._producer.producer import Producer
from anabranch.client._queue.consumer import QueueConsumer
from anabranch.client._settings import (
    ConsumerOptions,
    ConsumerSettings,
    Deserializer,
    ProducerOptions,
    ProducerSettings,
    QueueOptions,
    QueueSettings,
    ReceivingSettings,
    Start,
    start_milliseconds,
)
from anabranch.client._topics.access import NodeAccess
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.topic_list import TopicSelection
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import InvalidInputError
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.protocol import unsupported
from anabranch.wire.logging import get_logger

PartT = TypeVar("PartT", Producer, StreamConsumer, CheckpointConsumer, QueueConsumer)

_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")

_logger = get_logger(__name__)


class Client(Closing):
    """A cluster, named by the URL of one or several of its nodes.

    A URL of `pulsar+ssl://` is for nodes' ports with TLS; `tls` says whom to trust there, if not
    the system's authorities, and has a certificate of one's own. `credentials`, a `Token` or
    `Basic`, show nodes who it is. Kafka is another matter: `kafka` has librdkafka's security
    properties, when it asks for some; its address comes from the nodes.

    Use as an asynchronous context manager, on one event loop: it closes, or after an error
    abandons, what it made. Nothing is connected before the first producer or consumer is made.
    Raises InvalidInputError.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        self._home = Home(self, f"the client of {url}", HOME_ERRORS)  # the loop of its first use
        self._access = NodeAccess(url, tls, credentials)
        connecting = self._access.connect
        self.nodes = Nodes(url, connecting)
        self.kafka = _checked(kafka)
        self._kafka_links: dict[str, KafkaLinks] = {}  # by bootstrap servers
        self._parts: list[Any] = []  # what has an async close()
        self._starts: set[asyncio.Timeout] = set()  # under way; closing the client ends them
        self._closed = False
        self._traffic = TrafficReporter(connecting=connecting)

    async def watch(self, topic: str, timeout_s: float = 10.0) -> LayoutWatch:
        """A watch of a topic's layout that knows the first one.

        Raises InvalidInputError, TopicNotFoundError, NodesUnreachableError, AuthenticationError,
        RefusedByNodeError, ClosedError.
        """
        self._check_open()
        watch = LayoutWatch(self.nodes, topic)
        await self._start(watch, timeout_s)
        watch.traffic = self._traffic.topic(watch)
        return watch

    async def watch_topics(self, topics: TopicSelection, timeout_s: float = 10.0) -> TopicListWatch:
        """A watch of which topics there are, which knows the first list.

        Raises NodesUnreachableError, AuthenticationError, RefusedByNodeError, DeadlineError,
        ClosedError.
        """
        self._check_open()
        watch = TopicListWatch(self.nodes, topics)
        await self._start(watch, timeout_s)
        return watch

    async def create_producer(
        self,
        topic: str,
        settings: ProducerSettings | None = None,
        **changes: Unpack[ProducerOptions],
    ) -> Producer:
        """A producer of `topic://tenant/namespace/name`; `changes` are fields of the settings.

        Raises InvalidInputError, TopicNotFoundError, NodesUnreachableError, AuthenticationError,
        RefusedByNodeError, ClosedError.
        """
        made = ProducerSettings.of(settings, changes)
        return await self._started(topic, lambda w: Producer(w, self._links(w), made))

    def _links(self, watch: LayoutWatch) -> KafkaLinks:
        """The connections to the topic's Kafka, which all producers share.

        Raises InvalidInputError where they cannot speak as Kafka's properties ask.
        """
        servers = watch.layout.bootstrap_servers
        if servers not in self._kafka_links:
            if why := unsupported(self.kafka):
                raise InvalidInputError(f"producers cannot use these properties of Kafka: {why}")
            self._kafka_links[servers] = KafkaLinks(servers, self.kafka)
        return self._kafka_links[servers]

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> StreamConsumer:
        """An ordered consumer; the subscription is made, at the beginning, if it is not there.

        Without a name the consumer gets one of its own; a name keeps its share of the topic over a
        restart. `changes` are fields of the settings. Raises InvalidInputError, ConsumerBusyError,
        SubscriptionError, TopicNotFoundError, NodesUnreachableError, AuthenticationError,
        RefusedByNodeError, ClosedError.
        """
        made = ConsumerSettings.of(settings, changes)
        return await self._subscribed(
            topic, subscription, consumer_name, lambda member: StreamConsumer(member, made)
        )

    async def subscribe_checkpoint(
        self,
        topic: str,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        position_of: PositionOf | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> CheckpointConsumer:
        """An ordered consumer whose positions the caller keeps; else as `subscribe`."""
        made = ConsumerSettings.of(settings, changes)
        return await self._subscribed(
            topic,
            subscription,
            consumer_name,
            lambda member: CheckpointConsumer(member, made, checkpoint, position_of),
        )

    async def subscribe_queue(
        self,
        topic: str,
        subscription: str,
        consumer_name: str = "",
        settings: QueueSettings | None = None,
        **changes: Unpack[QueueOptions],
    ) -> QueueConsumer:
        """An unordered consumer; messages are acknowledged one by one. Else as `subscribe`."""
        made = QueueSettings.of(settings, changes)
        return await self._subscribed(
            topic, subscription, consumer_name, lambda member: QueueConsumer(member, made)
        )

    async def subscribe_topics(
        self,
        topics: TopicSelection,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> StreamTopicsConsumer:
        """An ordered consumer of all topics of a selection, those that are yet to come included.

        `start` is for topics that are there now; those that come later begin at the earliest.
        Raises InvalidInputError, NodesUnreachableError, AuthenticationError, RefusedByNodeError,
        DeadlineError, ClosedError; a topic that cannot be subscribed to is logged and tried again.
        """
        made = ConsumerSettings.of(settings, changes)
        who = self._selected(topics, subscription, consumer_name)
        consumer = StreamTopicsConsumer(who, made)
        await self._start(consumer)
        return consumer

    async def subscribe_checkpoint_topics(
        self,
        topics: TopicSelection,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        *,
        checkpoint: TopicsCheckpoint | None = None,
        position_of: TopicsPositionOf | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> CheckpointTopicsConsumer:
        """As `subscribe_topics`, and the caller keeps the positions of all topics."""
        made = ConsumerSettings.of(settings, changes)
        who = self._selected(topics, subscription, consumer_name)
        consumer = CheckpointTopicsConsumer(who, made, checkpoint, position_of)
        await self._start(consumer)
        return consumer

    async def subscribe_queue_topics(
        self,
        topics: TopicSelection,
        subscription: str,
        consumer_name: str = "",
        settings: QueueSettings | None = None,
        **changes: Unpack[QueueOptions],
    ) -> QueueTopicsConsumer:
        """As `subscribe_topics`, unordered; messages are acknowledged one by one."""
        made = QueueSettings.of(settings, changes)
        who = self._selected(topics, subscription, consumer_name)
        consumer = QueueTopicsConsumer(who, made)
        await self._start(consumer)
        return consumer

    def _selected(
        self, topics: TopicSelection, subscription: str, consumer_name: str
    ) -> TopicsSubscription:
        self._check_open()
        who = (subscription, consumer_name, self.create_producer, self._traffic)
        return TopicsSubscription(self.nodes, self.kafka, topics, *who)

    async def peek(
        self,
        topic: str,
        messages_max: int = 10,
        *,
        start: Start = "latest",
        timeout_s: float = 10.0,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        decrypt: Callable[[bytes], bytes] | None = None,
    ) -> list[Message]:
        """Messages of a topic, in the order of their event times; no subscription is made.

        `start`: the earliest ones, the latest ones, or those of a time and later. Raises as
        `create_producer`, and KafkaReadError, DeadlineError.
        """
        peeking.check_count(messages_max)
        start_ms = start_milliseconds("start", start)
        settings = ReceivingSettings(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            decrypt=decrypt,
        )
        async with await self.watch(topic, timeout_s) as watch:
            return await peeking.peek(
                watch.layout, self.kafka, settings, messages_max, start_ms, timeout_s
            )

    async def _subscribed(
        self,
        topic: str,
        subscription: str,
        consumer_name: str,
        make: Callable[[Membership], PartT],
    ) -> PartT:
        def made(watch: LayoutWatch) -> PartT:
            who = (subscription, consumer_name)
            return make(Membership(self.nodes, watch, self.kafka, *who, self.create_producer))

        return await self._started(topic, made)

    async def _started(self, topic: str, make: Callable[[LayoutWatch], PartT]) -> PartT:
        watch = await self.watch(topic)
        try:
            part = make(watch)
        except BaseException:
            await watch.close()
            raise
        await self._start(part)
        return part

    async def _start(self, part: Any, *args: Any) -> None:
        """Starts and adopts it; when its start fails, is cancelled, or ended by the end of the
        client, nothing of it is left.
        """
        self.adopt(part)
        try:
            async with asyncio.timeout(None) as start:
                self._starts.add(start)
                try:
                    await part.start(*args)
                finally:
                    self._starts.discard(start)
            self._check_open()
        except BaseException as error:
            await _abandon(part)
            if isinstance(error, TimeoutError):  # by `_end_starts`, or of its own
                self._check_open()
            raise

    def adopt(self, part: Any) -> None:
        """Closes it when the client closes, the newest first."""
        self._parts = [each for each in self._parts if not getattr(each, "is_closed", False)]
        self._parts.append(part)

    async def close(self) -> None:
        """Closes what it made, producers after their messages are delivered (or their deadline).

        Raises the first error of that, and logs the others. When cancelled it abandons the rest.
        On another event loop than its own it is over in 5 s, as `abandon`.
        """
        if self._home.is_elsewhere:
            await self._close_elsewhere()
            return
        self._end_starts()
        failures: list[Exception] = []
        try:
            while self._parts:
                part = self._parts.pop()
                try:
                    await part.close()
                except Exception as error:  # noqa: BLE001 - the others must be closed all the same
                    failures.append(error)
                except BaseException:
                    self._parts.append(part)  # consumers go on closing, which is waited for
                    raise
            await self._traffic.close()
            self._close_links()
            await self._access.end()
            self._home.closed()
        except BaseException:
            _log_failures(failures)
            await self.abandon()
            raise
        _log_failures(failures[1:])
        if failures:
            raise failures[0]

    async def abandon(self) -> None:
        """Closes all at once; producers wait for a moment only. For the end after an error."""
        if self._home.is_elsewhere:
            await self._close_elsewhere()
            return
        self._end_starts()
        parts, self._parts = self._parts, []
        ends = [_abandon(part) for part in reversed(parts)]
        ends.append(self._traffic.close())
        _log_failures(await asyncio.gather(*ends, return_exceptions=True))
        self._close_links()
        await self._access.end()
        self._home.closed()

    async def _end_without_loop(self) -> None:
        self._closed = True
        parts, self._parts = self._parts, []
        ends = [part._end_without_loop() for part in reversed(parts)]
        _log_failures(await asyncio.gather(*ends, return_exceptions=True))
        self._close_links()
        self._access.drop()
        self._home.closed()

    def _close_links(self) -> None:
        while self._kafka_links:
            self._kafka_links.popitem()[1].close()

    def _end_starts(self) -> None:
        """Nothing is made from now on, and what is being made is not."""
        self._closed = True
        for start in self._starts:
            start.reschedule(0.0)  # long ago
        self._starts.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed: make another one")
        self._home.check()
        self._home.opened(self)


async def _abandon(part: Any) -> None:
    await getattr(part, "abandon", part.close)()


def _log_failures(outcomes: Iterable[BaseException | None]) -> None:
    for failure in outcomes:
        if failure is not None:
            _logger.warning("client.not_closed_well", why=str(failure))


def _checked(kafka: Any) -> dict[str, Any]:
    """Kafka's properties, of which librdkafka thinks that they fit. Raises InvalidInputError."""
    if kafka is not None and not isinstance(kafka, Mapping):
        raise InvalidInputError(f"kafka= is a mapping of properties, not a {type(kafka).__name__}")
    given = dict(kafka or {})
    for name, value in given.items():
        if not isinstance(name, str) or not (name.startswith(_SECURITY) or name == "client.id"):
            raise InvalidInputError(
                f"Kafka property {name!r} cannot be set: only client.id and those that start "
                f"with {', '.join(_SECURITY)}"
            )
        if not isinstance(value, str | int | float):
            raise InvalidInputError(
                f"Kafka property {name!r} is a str, a number or a bool, not a "
                f"{type(value).__name__}"
            )
    try:
        if given:
            KafkaClient({**given, "log_level": 0})  # connects to nothing, as it has no address
    except KafkaException as error:
        raise InvalidInputError(
            f"Kafka's client refuses its properties: {error.args[0].str()}"
        ) from None
    return given
