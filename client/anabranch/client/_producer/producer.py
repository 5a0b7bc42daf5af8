"""`Producer`: sends messages to a scalable topic, each key in order, each message once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable
from typing import Any, Final

from anabranch.client._aio import Closing
from anabranch.client._errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    DeliveryError,
)
from anabranch.client._producer.batch import OVERHEAD_BYTES, PendingMessage
from anabranch.client._producer.dispatcher import Dispatcher
from anabranch.client._producer.messages import (
    BatchStats,
    DeliveryResult,
    Headers,
    OnDelivery,
    Outgoing,
    event_time,
    now_ms,
)
from anabranch.client._producer.named import NamedProducer
from anabranch.client._producer.sequences import header
from anabranch.client._producer.throttled import longest_s
from anabranch.client._settings import ProducerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.logging import get_logger

_CHUNK: Final = 500  # sends between two turns of the event loop
_KEY_SMALL_BYTES: Final = 1_024
_WARM_S_MAX: Final = 5.0
_SETTLE_S_MAX: Final = 10.0  # giving up may take so long
_ABANDON_S: Final = 2.0
_running_loop = asyncio._get_running_loop
_logger = get_logger(__name__)


class Producer(Closing):
    """Sends messages to a scalable topic, each key in order. `Client.create_producer` makes it, and
    it is used on the client's event loop. The client closes it, or its own `async with` block does.

    A message's key decides its segment and bucket. Messages without a key go round. Keys and values
    are bytes (or bytearray, memoryview) or str, unless serializers are set. `event_time_ms`
    (milliseconds since 1970) becomes the Kafka timestamp, which is the time of sending by default.
    """

    def __init__(self, watch: LayoutWatch, links: KafkaLinks, settings: ProducerSettings) -> None:
        self.settings = settings
        self.topic = f"topic://{watch.topic}"
        self.is_closed = False
        self._lives_here(f"the producer of {self.topic}")
        self._watch = watch
        self._named: NamedProducer | None = None
        if settings.name:
            self._named = NamedProducer(
                settings.name,
                lambda: watch.layout,
                links,
                lambda error: self._dispatcher.end(error),
                lambda: self._dispatcher.appends.go_on(),
                is_new=settings.new_name,
            )
        self._dispatcher = Dispatcher(
            watch.layout, settings, links, traffic=watch.traffic, named=self._named
        )
        self._under_way = self._dispatcher.under_way
        self._routes = self._dispatcher.router.routes
        self._outgoing = Outgoing(self.topic, settings, self._subject)
        changing = (settings.key_serializer, settings.value_serializer, settings.encrypt)
        self._raw = changing == (None, None, None) and not settings.stamps
        self._count_max = settings.buffer_messages_max
        self._bytes_max = settings.buffer_bytes_max
        self._small_bytes_max = 0
        self._sends = itertools.count(1)

    def _subject(self) -> str:
        """An adopted topic keeps the name by which its writers have registered their schemas."""
        return self._watch.layout.adopted_from or self._watch.topic

    async def start(self) -> None:
        """Connects to Kafka. It does not wait for a Kafka that is out of reach, but sends do.

        With a name it waits, and raises ProducerBusyError, DuplicatesUnknownError, KafkaReadError
        or DeadlineError.
        """
        self._note_limit()
        self._watch.listeners.append(self._update)
        self._dispatcher.update(self._watch.layout)
        if self._named is not None:
            await self._named.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WARM_S_MAX):
                await self._dispatcher.start()

    # --- sending ------------------------------------------------------------------------

    async def send(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int | None = None,
        sequence: int | None = None,
    ) -> DeliveryResult:
        """Sends one message and waits until Kafka has it.

        `sequence`: the application's ascending number of the message, for a producer with a name.
        Raises MessageTooLargeError, SerializationError, DeliveryError, ClosedError,
        TopicNotFoundError. Cancelling the wait does not take the message back.
        """
        await self.room()
        outcome: asyncio.Future[DeliveryResult] = asyncio.get_running_loop().create_future()

        def settle(result: DeliveryResult | None, error: Exception | None) -> None:
            if outcome.done():
                return
            if result is None:
                outcome.set_exception(error or DeliveryError(f"{self.topic}: look into the log"))
            else:
                outcome.set_result(result)

        self.send_nowait(
            value,
            key,
            headers=headers,
            event_time_ms=event_time_ms,
            sequence=sequence,
            on_delivery=settle,
        )
        return await outcome

    async def post(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int | None = None,
        sequence: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hands one message over, as `send_nowait` does, but waits for room first."""
        if next(self._sends) % _CHUNK == 0:
            await asyncio.sleep(0)
        if not self._has_room():
            await self.room()
        self.send_nowait(
            value,
            key,
            headers=headers,
            event_time_ms=event_time_ms,
            sequence=sequence,
            on_delivery=on_delivery,
        )

    def send_nowait(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        event_time_ms: int | None = None,
        sequence: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hands one message over. `on_delivery` gets its result or its error on the event loop.

        Without `on_delivery` a message that fails makes the next `flush` raise. Raises
        BufferFullError, MessageTooLargeError, SerializationError, ClosedError, TopicNotFoundError.
        """
        if _running_loop() is not self._home.loop:  # only this loop may fill batches
            self._home.check()
        under_way = self._under_way
        if under_way.count >= self._count_max or under_way.bytes >= self._bytes_max:
            raise self._no_room()
        time_ms = now_ms() if event_time_ms is None else event_time(event_time_ms)
        if sequence is not None or self._named is not None:
            self._take_numbered(value, key, headers, time_ms, on_delivery, sequence)
        elif headers or not self._append(value, key, time_ms, on_delivery):
            self._take(value, key, headers, time_ms, on_delivery)

    async def send_many(self, messages: Iterable[tuple[Any, Any]]) -> int:
        """Hands (key, value) pairs over, as fast as there is room. Returns their number.

        A message that fails makes the next `flush` raise. A message that is refused here (too
        large, or by a serializer) ends the call. Those before it are under way.
        """
        self._home.check()
        if self._named is not None:
            raise InvalidInputError(
                f"send_many gives no sequence, which the producer of {self.topic} needs for its "
                "name: use post"
            )
        count = 0
        try:
            iterator = iter(messages)
        except TypeError:
            kind = type(messages).__name__
            raise InvalidInputError(f"send_many takes pairs of key and value: {kind}") from None
        while chunk := list(itertools.islice(iterator, _CHUNK)):
            while chunk:
                if not self._has_room():
                    await self.room()
                room = min(_CHUNK, self._count_max - self._under_way.count)
                taken = self._send_chunk(chunk[:room])
                count += taken
                del chunk[:taken]
                await asyncio.sleep(0)
        return count

    def _send_chunk(self, chunk: list[tuple[Any, Any]]) -> int:
        """Sends until the buffer is full of bytes.
        Returns the number of messages, which is at least one.
        """
        count, append, under_way = 0, self._append, self._under_way
        time_ms = now_ms()
        try:
            for key, value in chunk:
                if count and under_way.bytes >= self._bytes_max:
                    break
                if not append(value, key, time_ms, None):
                    self._take(value, key, None, time_ms, None)
                count += 1
        except (TypeError, ValueError) as error:
            if isinstance(error, AnabranchError):
                raise
            raise InvalidInputError(f"send_many takes pairs, of key and value: {error}") from None
        return count

    def _append(self, value: Any, key: Any, time_ms: int, on_delivery: OnDelivery | None) -> bool:
        """Appends a message whose place is known or easily found.
        Returns False for any other one, which takes the long way.
        """
        if value.__class__ is not bytes or not self._raw:
            return False
        try:
            writer = self._routes.get(key)
        except TypeError:
            return False  # a key without a hash
        if writer is None and key.__class__ is bytes and len(key) <= _KEY_SMALL_BYTES:
            writer = self._dispatcher.router.known(key)
        size = len(value)
        if writer is None or not writer.open or writer.lost or size > self._small_bytes_max:
            return False
        held = None
        if on_delivery is not None:
            held = PendingMessage(key, value, (), time_ms, on_delivery)
        if writer.append(key, value, time_ms, message=held):
            self._dispatcher.begun(writer)
        self._under_way.count += 1
        self._under_way.bytes += size
        return True

    # --- waiting ------------------------------------------------------------------------

    async def room(self) -> None:
        """Returns once a message may be sent. Raises ClosedError, TopicNotFoundError."""
        changed = self._dispatcher.changed
        while not self._has_room():
            self._check_usable()
            changed.clear()
            await changed.wait()  # bounded: messages under way have a delivery time-out
        self._check_usable()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Returns once everything sent so far is settled. It does not wait for messages that are
        sent meanwhile.

        It takes little longer than the delivery time-out, or five times as long if Kafka throttles.
        `timeout_s` is in seconds. Raises DeliveryError if messages failed whose failure nobody has
        been told, and DeadlineError.
        """
        self._home.check()
        patience_s = timeout_s
        if patience_s is None:
            patience_s = longest_s(self.settings.delivery_timeout_s) + _SETTLE_S_MAX
        await self._dispatcher.flush(patience_s)
        self._dispatcher.callbacks.raise_failures()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flushes and ends the producer. It gives up messages that are not delivered within
        `timeout_s` seconds.

        Raises the errors of `flush`.
        """
        self._home.check()
        if self.is_closed:
            return
        self.is_closed = True
        self._count_max = 0
        try:
            await self.flush(timeout_s)
        except asyncio.CancelledError:
            why = f"closing was cancelled with {self.under_way} messages under way"
            _logger.warning("producer.abandoned", topic=self.topic, why=why)
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._watch.listeners.remove(self._update)
            await self._dispatcher.close()
            if self._named is not None:
                await self._named.close()
            await self._watch.close()

    async def abandon(self) -> None:
        """Closes it after waiting a moment for messages under way. It only logs failures."""
        try:
            await self.close(_ABANDON_S)
        except ClientError as error:
            _logger.warning("producer.abandoned", topic=self.topic, why=str(error))

    def stats(self) -> list[BatchStats]:
        """Returns the fill of the batches that it wrote to each bucket, by segment and bucket.

        It covers the buckets that it writes to now, each since its first message there.
        """
        return self._dispatcher.batch_stats()

    @property
    def sequence(self) -> int:
        """The number up to which all messages are stored, -1 for none. A producer with a name has
        it: after a restart the application goes on behind it.
        """
        return -1 if self._named is None else self._named.numbers.settled

    @property
    def layout(self) -> TopicLayout:
        """The newest layout that the producer knows."""
        return self._watch.layout

    @property
    def under_way(self) -> int:
        """The number of messages that are not settled yet."""
        return self._under_way.count

    # --- inside -------------------------------------------------------------------------

    def _update(self, layout: TopicLayout) -> None:
        self._dispatcher.update(layout)
        if self._named is not None:
            self._named.poke()

    def _take_numbered(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        time_ms: int,
        on_delivery: OnDelivery | None,
        sequence: int | None,
    ) -> None:
        """Sends a message under its number, unless that is stored."""
        named = self._named
        if named is None:
            raise InvalidInputError(
                f"sequence= is for producers with a name: create that of {self.topic} with name= "
                "and deduplicate=True"
            )
        self._check_usable()
        numbers = named.numbers
        number = numbers.checked(sequence)
        if numbers.is_stored(number):
            place = numbers.skip(number)
            at = (place.segment_id, place.bucket, place.offset) if place else (-1, -1, -1)
            result = DeliveryResult(self.topic, *at, -1, is_repeat=True)
            if on_delivery is not None:
                held = PendingMessage(None, None, on_delivery=on_delivery)
                self._dispatcher.callbacks.delivered(held, result)
                self._dispatcher.tell_soon()
            return

        def settle(result: DeliveryResult | None, error: Exception | None) -> None:
            numbers.settle(number, is_stored=result is not None)
            if on_delivery is not None:
                on_delivery(result, error)
            elif error is not None:
                self._dispatcher.callbacks.failed(PendingMessage(None, None), error)

        limit, mark = self._watch.layout.max_message_bytes, header(named.hash, number)
        held = self._outgoing.held(value, key, headers, time_ms, settle, limit, mark)
        self._dispatcher.take(held)
        numbers.send(number)

    def _take(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        time_ms: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        """Sends a message the long way, and remembers the short one for the next of its key."""
        self._check_usable()
        self._note_limit()
        limit = self._watch.layout.max_message_bytes
        held = self._outgoing.held(value, key, headers, time_ms, on_delivery, limit)
        self._dispatcher.take(held)
        if held.key is not None and self._raw:
            writer = self._routes.get(held.key)
            if len(held.key) > _KEY_SMALL_BYTES:
                self._routes.pop(held.key, None)
            elif writer is not None and key.__class__ is str:
                self._routes[key] = writer

    def _has_room(self) -> bool:
        under_way = self._under_way
        return under_way.count < self._count_max and under_way.bytes < self._bytes_max

    def _no_room(self) -> Exception:
        if self.is_closed:
            return ClosedError(f"the producer of {self.topic} was closed: create another one")
        there = self._under_way
        return BufferFullError(
            f"{there.count} messages to {self.topic} ({there.bytes} bytes) are under way, which is "
            "all the buffer takes: await room(), or use send"
        )

    def _note_limit(self) -> None:
        limit = self._watch.layout.max_message_bytes
        self._small_bytes_max = max(0, limit - OVERHEAD_BYTES - _KEY_SMALL_BYTES)

    def _check_usable(self) -> None:
        self._home.check()
        if self.is_closed:
            raise ClosedError(f"the producer of {self.topic} was closed: create another one")
        if self._watch.layout.deleted:
            raise self._dispatcher.sender.gone()
        if self._named is not None:
            self._named.check_usable()
