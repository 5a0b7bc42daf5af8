"""`ShareReader`: one member of a Kafka share group (KIP-932), on a thread of its own.

What librdkafka's share consumer (2.16, a preview) asks for, and what is made of it:

* Everything a poll returned must be settled before the next poll. So messages come as one
  *delivery* at a time; when the application has not settled it after most of the time for which
  Kafka locks a record, the rest is released, before another consumer gets it anyway.
* The group's coordinator makes known partitions of a new topic only in answer to a later heartbeat,
  every five seconds by default. Another subscription makes librdkafka send one at once, so after
  each change of topics the name of a topic that is not there is added and taken away a few times.
* A fetch that waits for news holds back the first one of another partition: `fetch.wait.max.ms`.
* The next poll takes the answers along. To have them sent at once (`commit_async`) makes a request
  of its own, which the one of the next poll waits for: a backlog took 12 % longer. So that is asked
  for only where something else comes before a poll.
"""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, ShareConsumer

from anabranch.client.consumer_errors import KafkaReadError
from anabranch.client.queue_drain import Contact
from anabranch.client.read_trouble import LIBRDKAFKA_LOG, ReadTrouble
from anabranch.client.reads import size_of, topics_of
from anabranch.wire.log import get_logger

_log = get_logger(__name__)

_KAFKA: Final[Mapping[str, Any]] = {
    "share.acknowledgement.mode": "explicit",
    "fetch.wait.max.ms": 10,
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "statistics.interval.ms": 500,
    "log_level": 3,  # errors; one warns that this is a preview
}
_POLL_S: Final = 0.02
_PARKED_S: Final = 0.1
_CLOSE_S_MAX: Final = 5.0
# When, after a change of topics, the coordinator is asked for the assignment once more.
_NUDGES_S: Final = (0.005, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)

_OPEN: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
_TYPES: Final = {
    ACCEPT: AcknowledgeType.ACCEPT,
    RELEASE: AcknowledgeType.RELEASE,
    REJECT: AcknowledgeType.REJECT,
}


_NONE: Final[Mapping[str, int]] = {}


class Delivery:
    """What one poll returned. Settled on the event loop; over once all of it is, or at its end."""

    __slots__ = ("_answers", "_left", "_over", "_settled", "counts", "messages", "size_bytes")

    def __init__(
        self,
        messages: list[Message],
        counts: Mapping[str, int] = _NONE,
        size_bytes: int = 0,
    ) -> None:
        self.messages = messages
        self.counts = counts  # of messages, about, by topic: all topics are named
        self.size_bytes = size_bytes  # of the values, about
        self._answers = bytearray(len(messages))
        self._left = len(messages)
        self._over = False
        self._settled = threading.Event()

    def settle(self, index: int, answer: int) -> bool:
        """Says what becomes of one message. False if that is not ours to say any more."""
        if self._over:
            return False
        if self._answers[index] == _OPEN:
            self._left -= 1
        self._answers[index] = answer
        if self._left == 0:
            self._settled.set()
        return True

    def settle_open(self, count: int, answer: int) -> bool:
        """Says the same of all that is open among the first `count`."""
        if self._over:
            return False
        before = self._answers[:count]
        self._left -= before.count(_OPEN)
        self._answers[:count] = before.replace(bytes([_OPEN]), bytes([answer]))
        if self._left == 0:
            self._settled.set()
        return True

    def messages_at(self, indices: range) -> Sequence[Message]:
        """Some of the messages; all of them without a copy."""
        whole = len(indices) == len(self.messages)
        return self.messages if whole else [self.messages[index] for index in indices]

    def wait(self, timeout_s: float) -> bool:
        """For the reader: whether all was settled in time."""
        return self._settled.wait(timeout_s)

    def end(self) -> Sequence[int]:
        """For the reader: the answers; from now on nothing is settled any more."""
        self._over = True
        return [answer or RELEASE for answer in self._answers]


class ShareReader:
    """Polls the topics that `subscribe` names; made and used on one event loop.

    `on_read` is called on the loop when a delivery is there to be taken. `on_poll` is called there
    after each poll with when it began and ended, and the topics of what it brought; `on_contact`
    now and then with whether the brokers answered the polls since it was called last.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        lock_s: float,
        messages_max: int,
        on_read: Callable[[], None],
        on_poll: Callable[[float, float, set[str]], None],
        on_contact: Callable[[bool], None],
    ) -> None:
        self._contact = Contact()
        self._on_contact = on_contact
        self._consumer = ShareConsumer(
            {
                **_KAFKA,
                "max.poll.records": messages_max,
                **kafka,
                "logger": LIBRDKAFKA_LOG,
                "error_cb": self._lost,
                "stats_cb": self._counted,
            }
        )
        self._hold_s = lock_s * 0.8
        self._on_read = on_read
        self._on_poll = on_poll
        self._loop = asyncio.get_running_loop()
        self._deliveries: collections.deque[Delivery] = collections.deque(maxlen=1)
        self._wanted: tuple[str, ...] = ()
        self._topics: tuple[str, ...] = ()  # the thread's, as everything below
        self._nudges: list[float] = []
        self._nudged = False
        self._turn_number = 0
        self._unsent = False  # answers were given since the last poll
        self._stopped = False
        self._wake = threading.Event()
        self._trouble = ReadTrouble(on_read)
        self._thread = threading.Thread(target=self._run, name="anabranch-share", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> KafkaReadError | None:
        """Why nothing can be read any more."""
        return self._trouble.failure

    @property
    def last_trouble(self) -> str:
        """What Kafka refused or lacked last, for the end of a message."""
        return self._trouble.last

    def subscribe(self, topics: Sequence[str]) -> None:
        """Poll these, and no others."""
        self._wanted = tuple(sorted(topics))
        self._wake.set()

    def take(self) -> Delivery | None:
        """The delivery that is there."""
        return self._deliveries.popleft() if self._deliveries else None

    async def close(self, current: Delivery | None) -> bool:
        """Settles what was said of the current delivery, releases the rest, leaves the group.

        False when that is not over after a while: Kafka may lock messages for this consumer yet.
        """
        self._stopped = True
        for delivery in (current, *self._deliveries):
            if delivery is not None:
                delivery.settle_open(len(delivery.messages), RELEASE)
        self._wake.set()
        await asyncio.to_thread(self._thread.join, _CLOSE_S_MAX)
        if self._thread.is_alive():
            _log.warning("consumer.close_hangs")
            return False
        return True

    # On the thread.

    def _run(self) -> None:
        try:
            while not self._stopped:
                try:
                    self._turn()
                except KafkaException as error:
                    self._trouble.note(error.args[0])
                    self._wake.wait(_PARKED_S)
        except Exception as error:  # noqa: BLE001 - told to whoever receives
            self._trouble.fault(error)
        finally:
            self._leave()

    def _turn(self) -> None:
        self._follow()
        if not self._topics:
            self._wake.wait(_PARKED_S)
            self._wake.clear()
            return
        began = time.monotonic()
        messages = found = list(self._consumer.poll(_POLL_S))
        self._unsent = False
        if any(map(Message.error, found)):  # nearly never, and a loop would cost as much as reading
            for message in found:
                self._trouble.note(message.error())
            messages = [message for message in found if message.error() is None]
        topics = {topic or "" for topic in set(map(Message.topic, messages))}
        self._loop.call_soon_threadsafe(self._on_poll, began, time.monotonic(), topics)
        if messages:
            self._trouble.well()
            self._deliver(messages, topics, began)

    def _deliver(self, messages: list[Message], topics: set[str], began: float) -> None:
        self._turn_number += 1
        turn = self._turn_number
        counts = dict.fromkeys(topics, 0) | topics_of(messages, turn)
        delivery = Delivery(messages, counts, size_of(messages, turn))
        self._deliveries.append(delivery)
        if self._stopped:  # either we see this, or `close` sees the delivery
            delivery.settle_open(len(messages), RELEASE)
        self._loop.call_soon_threadsafe(self._on_read)
        if not delivery.wait(began + self._hold_s - time.monotonic()):
            _log.warning("consumer.settled_too_late", messages=len(messages))
        answers = delivery.end()
        if set(answers) == {ACCEPT}:  # as nearly always; this is three times as fast
            collections.deque(map(self._consumer.acknowledge, messages), maxlen=0)
        else:
            for message, answer in zip(messages, answers, strict=True):
                self._consumer.acknowledge(message, _TYPES[answer])
        self._unsent = True

    def _send(self) -> None:
        """Sends the answers that no poll has taken along."""
        if self._unsent:
            self._unsent = False
            self._consumer.commit_async()

    def _leave(self) -> None:
        try:
            self._send()
        except KafkaException as error:
            self._trouble.note(error.args[0])
        finally:
            self._consumer.close()

    def _follow(self) -> None:
        now = time.monotonic()
        if self._wanted != self._topics:
            self._send()
            self._topics = self._wanted
            self._nudges = [now + after for after in _NUDGES_S] if self._topics else []
            self._nudged = False
            self._consumer.subscribe(list(self._topics))
        elif self._nudges and now >= self._nudges[0]:
            self._send()
            self._nudges = [at for at in self._nudges if at > now]
            self._nudged = not self._nudged
            nobody = [f"{self._topics[0][:240]}.nobody"] if self._nudged else []
            self._consumer.subscribe([*self._topics, *nobody])

    def _counted(self, statistics: str) -> None:
        answered = self._contact.answered(statistics)
        self._loop.call_soon_threadsafe(self._on_contact, answered)

    def _lost(self, error: KafkaError) -> None:
        """A connection broke, or there is none: what was polled lately may have reached nobody."""
        self._loop.call_soon_threadsafe(self._on_contact, False)
        self._trouble.heard(error)
        self._trouble.note(error)
