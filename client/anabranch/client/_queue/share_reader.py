"""`ShareReader`: one member of a Kafka share group (KIP-932), on a thread of its own.

librdkafka's share consumer (2.16, a preview) has these demands, and the reader meets them so:

* Every message of a poll must be settled before the next poll. So messages come as one *delivery*
  at a time. The application may settle it for most of the time of Kafka's lock. Then the rest is
  released, before another consumer gets it anyway.
* Kafka counts the deliveries of a record, and discards the record if its last allowed delivery ends
  in a release. So the reader asks for nothing that nobody waits for: each call of `take` that finds
  nothing allows one more delivery. It leaves the group after a delivery that expires, or after the
  time of one without a call. Others have its partitions then.
* `max.poll.records` is no bound: Kafka gives whole batches, as the producer made them, until it is
  reached. With 1 it gives one batch of one partition, and it gives a record for the last time
  alone. So a consumer begins with 1, and with 1 again after a delivery that expired. After some
  deliveries that were settled quickly it joins again for more (`Pace`): a new member has messages
  after 25 to 40 ms. Kafka reads far more than it then gives out, again for each fetch: with
  deliveries of 500 small messages a backlog cost it three times as much as with 2,000.
* It asks one broker at a time: the leader of the next one of its partitions. A broker that leads
  few of many is asked rarely, and gives one batch then while the number is 1.
* The group's coordinator tells partitions of a new topic only in answer to a later heartbeat, every
  five seconds by default. Another subscription makes librdkafka send a heartbeat at once. So after
  each change of topics the reader adds and removes the name of a missing topic a few times.
* A fetch that waits for news holds back the first one of another partition: `fetch.wait.max.ms`.
* The next poll takes the answers along. Sending them at once (`commit_async`) makes a request of
  its own, and the next poll's request waits for it: a backlog took 12 % longer. So the reader does
  that only if something else comes before a poll.
* A group cannot deliver a message again later. So a member that is to release messages after a
  while, or waits for the answers of some (dead letters), keeps those locked meanwhile: it is
  *parked*. It unsubscribes, which gives its partitions to others at once and leaves it its locks,
  and the consumer reads on by another member (`ShareReaders`).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, ShareConsumer

from anabranch.client._aio import call_on
from anabranch.client._consumer.reads import ReadTrouble, partition_of, size_of, topics_of
from anabranch.client._errors import KafkaReadError
from anabranch.client._kafka_options import SHARE_CONSUMER, made
from anabranch.client._queue.messages import ACCEPT, DELAY, REJECT, RELEASE, Delivery
from anabranch.client._queue.pace import Pace
from anabranch.client._queue.share_group import Delivering
from anabranch.wire.logging import get_logger

_logger = get_logger(__name__)

_MEMBERS_MAX: Final = 8  # for one consumer
_POLL_S: Final = 0.02
_SEND_AFTER_S: Final = 0.01  # for answers that no poll takes along
_REST_S: Final = 0.1
# The times after a change of topics at which the coordinator is asked for the assignment again.
_NUDGES_S: Final = (0.005, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)
_REFUSED_S: Final = 0.1
_HELD_S: Final = 1.0  # others wait so long for a letter: another member takes as long to come
_CLOSE_S_MAX: Final = 5.0
_TOLD_MAX: Final = 10  # discarded messages, one by one

_TYPES: Final = {
    ACCEPT: AcknowledgeType.ACCEPT,
    RELEASE: AcknowledgeType.RELEASE,
    DELAY: AcknowledgeType.RELEASE,
    REJECT: AcknowledgeType.REJECT,
}


class ShareReader:
    """Polls the topics of `subscribe`. Make it and use it on one event loop.

    It makes its calls on the loop. `on_read` tells that a delivery is there to be taken. `on_park`
    tells that it is parked, or no more.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        delivering: Delivering,
        pace: Pace,
        on_read: Callable[[], None],
        on_park: Callable[[], None],
    ) -> None:
        self.is_parked = False
        self._kafka = kafka
        self._hold_s = delivering.hold_s
        self._count_max = delivering.count_max
        self._pace = pace
        self._on_read = on_read
        self._on_park = on_park
        self._loop = asyncio.get_running_loop()
        self._wanted: tuple[str, ...] = ()
        self._waiting = 0  # receivers
        self._lock = threading.Lock()  # for the next three
        self._ready: Delivery | None = None
        self._parked: Delivery | None = None
        self._asked = False
        # Of the thread, as everything below.
        self._turn_number = 0
        self._unsent = False  # answers were given since the last poll
        self._untaken = False  # True: the last delivery was not taken
        self._idle_since = time.monotonic()
        self._records = pace.records  # the number that it has joined for
        self._topics: tuple[str, ...] = ()
        self._nudges: list[float] = []
        self._nudged = False
        self._stopped = False
        self._wake = threading.Event()
        self.trouble = ReadTrouble(on_read)
        self._consumer: ShareConsumer | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-share", daemon=True)
        self._thread.start()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Polls these topics, and no others."""
        self._wanted = tuple(sorted(topics))
        self._wake.set()

    def take(self) -> Delivery | None:
        """Returns the present delivery. If there is none, it asks for one, and `on_read` tells."""
        with self._lock:
            found, self._ready = self._ready, None
            self._asked = self._asked or found is None
        return found

    @contextlib.contextmanager
    def receiver(self) -> Iterator[None]:
        """Wraps the waiting of a receiver whose `take` found nothing.

        If nobody came for a delivery, the next one is only polled while somebody waits. Else an
        application that looks in for a moment now and then would use up the deliveries of the same
        messages.
        """
        self._waiting += 1
        self._wake.set()
        try:
            yield
        finally:
            self._waiting -= 1

    async def close(self, current: Delivery | None) -> None:
        """Settles the answered part of the current delivery, releases the rest, and leaves the
        group.
        """
        self._stopped = True
        with self._lock:
            ready, parked = self._ready, self._parked
        for delivery in (current, ready):
            if delivery is not None:
                delivery.acknowledge_open(len(delivery.messages), RELEASE)
        if parked is not None:
            parked.free()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, _CLOSE_S_MAX)
        if self._thread.is_alive():
            _logger.warning("consumer.close_hangs")

    # On the thread.

    def _run(self) -> None:
        joins = True
        try:
            while not self._stopped:
                try:
                    if joins:
                        self._consumer, joins = self._member(), False
                    self._turn()
                except KafkaException as error:
                    self.trouble.note(error.args[0])
                    self._wake.wait(_REFUSED_S)
        except Exception as error:  # noqa: BLE001 - told to whoever receives
            self.trouble.fault(error)
        finally:
            try:
                self._leave()
            except KafkaException as error:
                self.trouble.note(error.args[0])

    def _turn(self) -> None:
        self._wake.clear()
        if self._stopped:  # said before: nothing would wake us
            return
        if not (self._wanted and self._asked and (self._waiting or not self._untaken)):
            self._rest()
            return
        if self._records != self._pace.records:
            self._leave()
        if self._consumer is None:
            self._consumer = self._member()
        self._follow(self._consumer)
        self._poll(self._consumer)
        self._idle_since = time.monotonic()

    def _rest(self) -> None:
        """Sends answers and follows topics while nobody asks for messages."""
        idle_s = time.monotonic() - self._idle_since
        if idle_s >= _SEND_AFTER_S:
            self._send()
        if idle_s >= self._hold_s:  # nobody has asked for as long as a delivery lasts
            self._leave()
        if self._consumer is None:
            self._wake.wait()
            return
        self._follow(self._consumer)
        self._wake.wait(_SEND_AFTER_S if self._unsent or self._nudges else _REST_S)

    def _poll(self, consumer: ShareConsumer) -> None:
        began = time.monotonic()
        messages = found = list(consumer.poll(_POLL_S))
        self._pace.asked(time.monotonic() - began)
        self._unsent = False
        if any(map(Message.error, found)):  # nearly never, and a loop would cost as much as reading
            for message in found:
                self.trouble.note(message.error())
            messages = [message for message in found if message.error() is None]
        if messages:
            self.trouble.well()
            self._deliver(consumer, messages, began)

    def _deliver(self, consumer: ShareConsumer, messages: list[Message], began: float) -> None:
        self._turn_number += 1
        turn = self._turn_number
        topics = {topic or "" for topic in set(map(Message.topic, messages))}
        counts = dict.fromkeys(topics, 0) | topics_of(messages, turn)
        hold_until = began + self._hold_s
        delivery = Delivery(messages, counts, size_of(messages, turn), hold_until)
        with self._lock:
            self._ready, self._asked = delivery, False
        if self._stopped:  # either we see this, or `close` sees the delivery
            delivery.acknowledge_open(len(messages), RELEASE)
        call_on(self._loop, self._on_read)
        in_time = delivery.wait(hold_until - time.monotonic())
        delivery.wait_held(min(_HELD_S, hold_until - time.monotonic()))
        with self._lock:
            self._untaken, self._ready = self._ready is not None, None
            answers, due = delivery.end()
            self._parked = delivery if due else None
        if set(answers) == {ACCEPT}:  # nearly always so; this is three times as fast
            collections.deque(map(consumer.acknowledge, messages), maxlen=0)
        else:
            for index, answer in enumerate(answers):
                if index not in due:
                    consumer.acknowledge(messages[index], _TYPES[answer])
            self._tell_discarded(messages, answers)
        self._unsent = True
        # Before another member reads, whose deliveries are counted, too.
        joins_anew = self._pace.ended(in_time, len(messages), time.monotonic())
        if due:
            self._park(consumer, delivery)
        if not in_time:
            _logger.warning("consumer.settled_too_late", messages=answers.count(RELEASE))
        if joins_anew and not self._stopped:
            self._leave()

    def _park(self, consumer: ShareConsumer, delivery: Delivery) -> None:
        """Keeps held and delayed messages locked, while others have the partitions."""
        self._send()
        consumer.unsubscribe()
        self._topics, self._nudges = (), []
        self._parks(True)
        if self._stopped:  # either we see this, or `close` sees the delivery
            delivery.free()
        try:
            while freed := delivery.freed():
                for index, answer in freed:
                    consumer.acknowledge(delivery.messages[index], _TYPES[answer])
                self._unsent = True
                self._send()
        finally:
            self._parks(False)

    def _parks(self, parked: bool) -> None:
        self.is_parked = parked
        call_on(self._loop, self._on_park)

    def _tell_discarded(self, messages: Sequence[Message], answers: Sequence[int]) -> None:
        """Logs messages that Kafka does not deliver again after too many deliveries, because Kafka
        tells nobody.
        """
        gone = [
            message
            for message, answer in zip(messages, answers, strict=True)
            if answer in (RELEASE, DELAY) and (message.delivery_count() or 0) >= self._count_max
        ]
        for message in gone[:_TOLD_MAX]:
            topic, bucket = partition_of(message)
            _logger.error(
                "consumer.message_discarded",
                kafka_topic=topic,
                bucket=bucket,
                offset=message.offset(),
                deliveries=message.delivery_count(),
            )
        if len(gone) > _TOLD_MAX:
            _logger.error("consumer.messages_discarded", messages=len(gone))

    def _send(self) -> None:
        """Sends the answers that no poll has taken along."""
        if self._unsent and self._consumer is not None:
            self._unsent = False
            self._consumer.commit_async()

    def _member(self) -> ShareConsumer:
        """Returns a new member of the group, for the present number of records."""
        self._records, self._topics = self._pace.records, ()
        own = {"max.poll.records": self._pace.records, **self._kafka, "error_cb": self._lost}
        return made(ShareConsumer, {**SHARE_CONSUMER, **own})

    def _leave(self) -> None:
        """Sends the answers and leaves the group."""
        try:
            self._send()
        finally:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _follow(self, consumer: ShareConsumer) -> None:
        wanted, now = self._wanted, time.monotonic()
        if wanted != self._topics:
            self._topics = wanted
            self._nudges = [now + after for after in _NUDGES_S] if wanted else []
            self._nudged = False
        elif self._nudges and now >= self._nudges[0]:
            self._nudges = [at for at in self._nudges if at > now]
            self._nudged = not self._nudged
        else:
            return
        self._send()
        consumer.subscribe([*wanted, *([f"{wanted[0][:240]}.nobody"] if self._nudged else [])])

    def _lost(self, error: KafkaError) -> None:
        """Notes that a connection broke, or that there is none."""
        self.trouble.heard(error)
        self.trouble.note(error)


Make = Callable[[Callable[[], None]], ShareReader]  # with what is to be called when it is parked


class ShareReaders:
    """The members of a share group that one queue consumer has.

    They look like one `ShareReader`, which is parked only if all that are allowed are. One of them
    reads at a time. Another one takes over when it is parked with messages to release later. A
    member that is not needed subscribes to nothing, so that Kafka gives it no partitions that
    nobody would read. It leaves the group after a while.
    """

    def __init__(self, make: Make, on_read: Callable[[], None]) -> None:
        self._make = make
        self._on_read = on_read
        self._topics: tuple[str, ...] = ()
        self._is_closing = False
        self._members = [make(self._parked)]
        self._reading: ShareReader | None = self._members[0]

    @property
    def failure(self) -> KafkaReadError | None:
        """The reason why nothing can be read any more, None if reading goes on."""
        failures = (each.trouble.failure for each in self._members)
        return next((failure for failure in failures if failure is not None), None)

    @property
    def last_trouble(self) -> str:
        """Returns Kafka's last refusal or missing topic, for the end of a message."""
        return (self._reading or self._members[0]).trouble.last

    def subscribe(self, topics: Sequence[str]) -> None:
        """Polls these topics, and no others."""
        self._topics = tuple(sorted(topics))
        if self._reading is not None:
            self._reading.subscribe(self._topics)

    def take(self) -> Delivery | None:
        """Returns the present delivery. If there is none, it asks for one, and `on_read` tells."""
        return None if self._reading is None else self._reading.take()

    @contextlib.contextmanager
    def receiver(self) -> Iterator[None]:
        """Wraps the waiting of a receiver, as `ShareReader.receiver` does."""
        with self._reading.receiver() if self._reading else contextlib.nullcontext():
            yield

    async def close(self, current: Delivery | None) -> None:
        """Settles and leaves with each member.
        Messages with a later release are released at once.
        """
        self._is_closing = True
        await asyncio.gather(*(each.close(current) for each in self._members))

    def _parked(self) -> None:
        """Lets another member read if this one is parked, or was the last."""
        if self._is_closing or (self._reading is not None and not self._reading.is_parked):
            return
        if self._reading is not None:
            self._reading.subscribe(())
        self._reading = next((each for each in self._members if not each.is_parked), None)
        if self._reading is None and len(self._members) < _MEMBERS_MAX:
            self._reading = self._make(self._parked)
            self._members.append(self._reading)
        if self._reading is not None:
            self._reading.subscribe(self._topics)
            self._on_read()  # waiting receivers must ask the one that reads now
