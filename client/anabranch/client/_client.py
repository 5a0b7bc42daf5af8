"""`Client`, the way into a cluster. It makes producers and consumers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack

from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaClient

from anabranch.access import Credentials, Tls, kafka_tokens
from anabranch.access.errors import CredentialsError as NoTokenError
from anabranch.access.home import Home
from anabranch.access.kafka import access_of, read_access
from anabranch.access.kafka_tokens import OAUTH_CB, TokenSource
from anabranch.client._aio import Closing, on_thread
from anabranch.client._consumer import peek as peeking
from anabranch.client._consumer.checkpoint import Checkpoint, CheckpointConsumer, PositionOf
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.messages import Message
from anabranch.client._errors import HOME_ERRORS, ClosedError, CredentialsError
from anabranch.client._many.consumer import StreamTopicsConsumer
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
from anabranch.client._stream.consumer import StreamConsumer
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import NodeAccess, Nodes
from anabranch.client._topics.topic_list import TopicSelection
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import InvalidInputError
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.protocol import unsupported
from anabranch.wire.logging import get_logger

PartT = TypeVar("PartT", Producer, StreamConsumer, CheckpointConsumer, QueueConsumer)

_logger = get_logger(__name__)


class Client(Closing):
    """A cluster, named by the URL of one or several of its nodes. It makes producers and consumers.

    A URL of `pulsar+ssl://` names nodes' ports with TLS. `tls` names the authorities to trust, if
    not the system's, and the client's own certificate. `credentials` (a `Token`) show
    nodes who the client is. `kafka` has the security properties of a Kafka that asks for some,
    under Java's names or librdkafka's: a mapping, or the path of a file or of a folder. Variables
    `ANABRANCH_KAFKA_<NAME>` go before a file, and a mapping is all. `kafka_token` gives the tokens
    that Kafka asks for (OAUTHBEARER). It is `aws`, `gcp`, `azure`, `file:PATH`, `module:function`,
    or a function that returns a token and its expiry, in seconds since 1970. The nodes tell the
    address of Kafka.

    Use it as an asynchronous context manager, on one event loop. It closes the producers and
    consumers that it made, or abandons them after an error. It connects to nothing before the first
    of them. Raises InvalidInputError.
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
        self._home = Home(self, f"the client of {url}", HOME_ERRORS)  # the loop of its first use
        self._access = NodeAccess(url, tls, credentials)
        connecting = self._access.connect
        self.nodes = Nodes(url, connecting)
        self.kafka = _checked(kafka, kafka_token)
        self._kafka_links: dict[str, KafkaLinks] = {}  # by bootstrap servers
        self._parts: list[Any] = []  # each has an async close()
        self._starts: set[asyncio.Timeout] = set()  # under way; closing the client ends them
        self._closed = False
        self._traffic = TrafficReporter(connecting=connecting)

    async def watch(self, topic: str, timeout_s: float = 10.0) -> LayoutWatch:
        """Returns a watch of a topic's layout, which knows the first layout already. It waits
        `timeout_s` seconds for that at most.

        Raises InvalidInputError, TopicNotFoundError, NodesUnreachableError, AuthenticationError,
        RefusedByNodeError, ClosedError.
        """
        self._check_open()
        watch = LayoutWatch(self.nodes, topic)
        await self._start(watch, timeout_s)
        watch.traffic = self._traffic.topic(watch)
        return watch

    async def watch_topics(self, topics: TopicSelection, timeout_s: float = 10.0) -> TopicListWatch:
        """Returns a watch of the topics of a selection, which knows the first list already. It
        waits `timeout_s` seconds for that at most.

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
        """Returns a producer of `topic://tenant/namespace/name`. `changes` are fields of the
        settings, by name.

        Raises InvalidInputError, TopicNotFoundError, NodesUnreachableError, AuthenticationError,
        RefusedByNodeError, ClosedError.
        """
        made = ProducerSettings.of(settings, changes)
        return await self._started(topic, lambda w: Producer(w, self._links(w), made))

    def _links(self, watch: LayoutWatch) -> KafkaLinks:
        """Returns the connections to the topic's Kafka, which all producers share.

        Raises InvalidInputError if they do not support Kafka's properties of this client.
        """
        servers = watch.layout.bootstrap_servers
        if servers not in self._kafka_links:
            kafka = kafka_tokens.at(self.kafka, servers)
            if why := unsupported(kafka):
                raise InvalidInputError(f"producers cannot use these properties of Kafka: {why}")
            self._kafka_links[servers] = KafkaLinks(servers, kafka)
        return self._kafka_links[servers]

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> StreamConsumer:
        """Returns an ordered consumer. A subscription that does not exist is created, and begins at
        `start` of the settings.

        A consumer without `consumer_name` gets a new name. A name of the caller's keeps its share
        of the topic over a restart. `changes` are fields of the settings, by name.

        Raises InvalidInputError, ConsumerBusyError, SubscriptionError, TopicNotFoundError,
        NodesUnreachableError, AuthenticationError, RefusedByNodeError, ClosedError.
        """
        made = ConsumerSettings.of(settings, changes)
        return await self._subscribed(
            topic,
            subscription,
            consumer_name,
            lambda member: StreamConsumer(member, made, self.create_producer),
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
        """Returns an ordered consumer whose positions the caller keeps. See `subscribe`."""
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
        """Returns an unordered consumer, which acknowledges single messages. See `subscribe`."""
        made = QueueSettings.of(settings, changes)
        return await self._subscribed(
            topic,
            subscription,
            consumer_name,
            lambda member: QueueConsumer(member, made, self.create_producer),
        )

    async def subscribe_topics(
        self,
        topics: TopicSelection,
        subscription: str,
        consumer_name: str = "",
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> StreamTopicsConsumer:
        """Returns an ordered consumer of all topics of a selection, including topics that are
        created later.

        `start` is for topics that exist now. Later ones begin at their earliest message. A topic
        that cannot be subscribed to is logged and tried again.

        Raises InvalidInputError, NodesUnreachableError, AuthenticationError, RefusedByNodeError,
        DeadlineError, ClosedError.
        """
        made = ConsumerSettings.of(settings, changes)
        self._check_open()
        ways = (self.nodes, self.kafka, self._traffic)
        who = (topics, subscription, consumer_name)
        consumer = StreamTopicsConsumer(*ways, *who, made, self.create_producer)
        await self._start(consumer)
        return consumer

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
        """Returns up to `messages_max` messages of a topic, in the order of their event times. It
        creates no subscription.

        `start` selects the earliest messages, the latest ones, or those of a time and later. Raises
        the errors of `create_producer`, KafkaReadError, and DeadlineError after `timeout_s`
        seconds.
        """
        peeking.check_count(messages_max)
        start_ms = start_milliseconds("start", start)
        settings = ReceivingSettings(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            decrypt=decrypt,
        )
        async with await self.watch(topic, timeout_s) as watch:
            await self._await_token(watch)
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
            return make(Membership(self.nodes, watch, self.kafka, *who))

        return await self._started(topic, made)

    async def _started(self, topic: str, make: Callable[[LayoutWatch], PartT]) -> PartT:
        watch = await self.watch(topic)
        try:
            await self._await_token(watch)
            part = make(watch)
        except BaseException:
            await watch.close()
            raise
        await self._start(part)
        return part

    async def _await_token(self, watch: LayoutWatch) -> None:
        """Waits for the first token of Kafka, which is all later ones' cache.
        Raises CredentialsError.
        """
        tokens = kafka_tokens.at(self.kafka, watch.layout.bootstrap_servers).get(OAUTH_CB)
        if tokens is not None:
            try:
                await on_thread(tokens.wait)
            except NoTokenError as error:
                raise CredentialsError(str(error)) from None

    async def _start(self, part: Any, *args: Any) -> None:
        """Starts and adopts the part, or abandons it if its start fails or is ended."""
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
            if isinstance(error, TimeoutError):  # from `_end_starts`, or the part's own
                self._check_open()
            raise

    def adopt(self, part: Any) -> None:
        """Has the client close the part when it closes, the newest part first."""
        self._parts = [each for each in self._parts if not getattr(each, "is_closed", False)]
        self._parts.append(part)

    async def close(self) -> None:
        """Closes all that it made. A producer first delivers its messages, until their deadline at
        most.

        It raises the first error, and logs the others. A cancelled `close` abandons the
        rest.
        """
        self._home.check()
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
        """Closes all parts at once, after an error. Producers wait only for a moment."""
        self._home.check()
        self._end_starts()
        parts, self._parts = self._parts, []
        ends = [_abandon(part) for part in reversed(parts)]
        ends.append(self._traffic.close())
        _log_failures(await asyncio.gather(*ends, return_exceptions=True))
        self._close_links()
        await self._access.end()
        self._home.closed()

    def _close_links(self) -> None:
        while self._kafka_links:
            self._kafka_links.popitem()[1].close()

    def _end_starts(self) -> None:
        """Forbids new parts, and ends the starts that are under way."""
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


def _checked(kafka: Any, kafka_token: TokenSource | None) -> dict[str, Any]:
    """Returns Kafka's properties after librdkafka has accepted them. Raises InvalidInputError."""
    if isinstance(kafka, Mapping):
        access = access_of(kafka)
    elif kafka is None or isinstance(kafka, str | os.PathLike):
        access = read_access(None if kafka is None else Path(kafka), os.environ)
    else:
        raise InvalidInputError(
            "kafka= is a mapping of properties, or the path of a file or folder of them, not a "
            f"{type(kafka).__name__}"
        )
    given = access.checked().with_tokens(kafka_token)
    # Without SASL, else it would ask for a token, and wait for that when it ends.
    protocol = str(given.get("security.protocol", "plaintext")).lower()
    bare = {name: value for name, value in given.items() if name != OAUTH_CB}
    bare |= {"security.protocol": protocol.removeprefix("sasl_"), "log_level": 0}
    try:
        if given:
            KafkaClient(bare)  # connects to nothing, as it has no address
    except KafkaException as error:
        raise InvalidInputError(
            f"Kafka's client refuses its properties: {error.args[0].str()}"
        ) from None
    return given
