"""`TestAnabranchBroker`: a broker without nodes and without Kafka, for tests of applications."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka import Message as KafkaMessage
from faststream._internal.testing.broker import TestBroker, change_producer

from anabranch.client import DeliveryResult, Message, Work
from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Source
from anabranch.client._producer.messages import Outgoing, event_time, now_ms
from anabranch.client.faststream.broker import AnabranchBroker
from anabranch.client.faststream.messages import Attempt
from anabranch.client.faststream.publisher import (
    AnabranchConfig,
    AnabranchPublishCommand,
    AnabranchPublisher,
    TopicProducers,
)
from anabranch.client.faststream.subscriber import AnabranchSubscriber
from anabranch.core.names import parse_scalable_topic

_BYTES_MAX = 5 * 1024 * 1024
_PLACE = SegmentBucket(0, 0)


class TestAnabranchBroker(TestBroker[AnabranchBroker, Any], broker=AnabranchBroker):
    """Calls handlers from `publish`, each once for a subscription. An error of a handler is raised
    there, without further attempts.
    """

    def create_publisher_fake_subscriber(
        self, broker: AnabranchBroker, publisher: AnabranchPublisher
    ) -> tuple[AnabranchSubscriber, bool]:
        for known in self.known():
            if known.topic == publisher.topic:
                return known, True
        return broker.subscriber(publisher.topic, subscription=f"test-{uuid4()}"), False

    @contextmanager
    def _patch_producer(self, broker: AnabranchBroker) -> Iterator[None]:
        config = broker.config.broker_config
        with change_producer(config, ProducersInMemory(self, config)):
            yield

    async def _fake_connect(self, broker: AnabranchBroker, *args: Any, **kwargs: Any) -> None:
        pass

    def known(self) -> list[AnabranchSubscriber]:
        """The subscribers of all its brokers."""
        every = (each for broker in self.brokers for each in broker.subscribers)
        return [each for each in every if isinstance(each, AnabranchSubscriber)]


class ProducersInMemory(TopicProducers):
    """Gives messages to handlers, as bytes."""

    def __init__(self, test: TestAnabranchBroker, config: AnabranchConfig) -> None:
        super().__init__(config.producer.settings)
        self.connect(None, config)
        self._test = test
        self._offsets = itertools.count()

    async def publish(self, cmd: AnabranchPublishCommand) -> DeliveryResult:
        body, headers = await self.encoded(cmd)
        topic, time_ms = parse_scalable_topic(cmd.destination), cmd.event_time_ms
        time_ms = now_ms() if time_ms is None else event_time(time_ms)
        outgoing = Outgoing(f"topic://{topic}", self.settings, lambda: topic)
        sent: Any = outgoing.held(body, cmd.key, headers, time_ms, None, _BYTES_MAX)
        offset, given = next(self._offsets), set[str]()
        for subscriber in self._test.known():
            if parse_scalable_topic(subscriber.topic) != topic or subscriber.subscription in given:
                continue
            given.add(subscriber.subscription)
            raw = KafkaMessage(
                topic=topic,
                partition=_PLACE.bucket,
                offset=offset,
                key=sent.key,
                value=sent.value,
                headers=list(sent.headers),
                timestamp=(TIMESTAMP_CREATE_TIME, time_ms),
            )
            source = Source(topic, 0, Holding(_PLACE, topic, None), subscriber.settings)
            message = Message(raw, source)
            await subscriber.process_message(Attempt(message, Work(message, 1, 1, None)))
        return DeliveryResult(topic, *_PLACE, offset=offset, timestamp_ms=time_ms)
