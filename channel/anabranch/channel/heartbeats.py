"""Heartbeats on Kafka: a sign of life goes out, is acknowledged, and comes back with all others'.

A late heartbeat is worth nothing, so one that Kafka does not take within a second or two is
dropped. A reader starts at the topic's end: older heartbeats would count as signs of life.

A heartbeat changes no state, so one of a schema that a later release added is passed over, unlike
such a record of the log. Its sender seems silent to an older node, which would take its bundles
away: a later release must keep sending what the one before it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from anabranch.channel.codec import decode_heartbeat, encode_heartbeat
from anabranch.channel.errors import KafkaRefusedError, NewerSchemaError, UnreadableError
from anabranch.channel.kafka.connection import (
    KAFKA_S_MAX,
    KafkaConnection,
    ProducerHealth,
    close_consumer,
    is_passing,
)
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import offsets
from anabranch.channel.passed_over import PassedOver
from anabranch.core.sessions.lease import Heartbeat

OnAcked = Callable[[Heartbeat], None]
"""Told of each heartbeat that is in the log for certain, on the thread that polls."""

_DELIVERY_TIMEOUT_MS: Final = 2_000
_QUEUE_MAX: Final = 100
_BATCH_MAX: Final = 1_000
_CLOSE_S_MAX: Final = 1.0
_log = structlog.get_logger()


class KafkaHeartbeats:
    """Publishes one broker's heartbeats and reads everybody's.

    `publish` is for any thread, `poll` for one. Raises KafkaUnreachableError.
    """

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._topic = topics.brokers
        self._passed_over = PassedOver("heartbeat.newer")
        self._health = ProducerHealth(self._topic)
        self._producer = connection.producer(
            self._health.note,
            is_polled=True,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            request_timeout_ms=_DELIVERY_TIMEOUT_MS,
            queue_buffering_max_messages=_QUEUE_MAX,
        )
        self._consumer = connection.consumer(is_polled=True, auto_offset_reset="latest")
        try:
            _, end = offsets(connection, self._consumer, self._topic, KAFKA_S_MAX)
        except BaseException:
            self.close()
            raise
        self._consumer.assign([TopicPartition(self._topic, 0, end)])

    @property
    def unreadable(self) -> int:
        """Counts heartbeats of no known schema that were passed over: the next is on its way."""
        return self._passed_over.count

    def publish(self, beat: Heartbeat, on_acked: OnAcked) -> None:
        """Sends a heartbeat; never blocks. Nothing is said of one that is lost."""

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                on_acked(beat)
            else:
                self._health.note(error)
                _log.info("heartbeat.lost", sequence=beat.sequence, reason=error.str())

        try:
            self._producer.produce(
                self._topic, encode_heartbeat(beat), beat.broker, 0, on_delivery=delivered
            )
        except BufferError:
            _log.info("heartbeat.lost", sequence=beat.sequence, reason="too many are waiting")
        except KafkaException as error:
            self._health.note(error.args[0])
            _log.info("heartbeat.lost", sequence=beat.sequence, reason=error.args[0].str())

    def poll(self, timeout_s: float) -> list[tuple[Heartbeat, int]]:
        """New heartbeats with the log's timestamps; calls the callbacks of those acknowledged.

        Returns as soon as there is one. Raises KafkaRefusedError, or ProducerLostError when no
        heartbeat can be sent any more.
        """
        self._producer.poll(0)
        first = self._consumer.poll(timeout_s)
        self._producer.poll(0)
        self._health.check()
        if first is None:
            return []
        beats: list[tuple[Heartbeat, int]] = []
        for message in (first, *self._consumer.consume(_BATCH_MAX, 0)):
            error = message.error()
            if error is not None:
                if not is_passing(error):
                    raise KafkaRefusedError(f"{self._topic} cannot be read: {error.str()}")
                continue
            value = message.value()
            if value is None:
                continue
            try:
                beats.append((decode_heartbeat(value), message.timestamp()[1]))
            except (UnreadableError, NewerSchemaError) as error:
                self._passed_over.note(error, message.key())
        return beats

    def close(self) -> None:
        """Ends the clients; no other call may be under way."""
        self._producer.flush(_CLOSE_S_MAX)
        close_consumer(self._consumer)
