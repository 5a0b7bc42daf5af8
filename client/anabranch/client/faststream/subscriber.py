"""`AnabranchSubscriber`: handlers of FastStream work in `run` of a consumer of the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import FeatureNotSupportedException, SetupError, StopConsume
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import SubscriberSpec

from anabranch.client import (
    Backoff,
    ConsumerOptions,
    ConsumerSettings,
    Message,
    QueueConsumer,
    QueueRunSettings,
    QueueSettings,
    RunOptions,
    RunSettings,
    StreamConsumer,
    Work,
)
from anabranch.client.faststream.messages import Attempt, decode_body, parse_message
from anabranch.client.faststream.publisher import AnabranchConfig, channel, topic_of
from anabranch.core.errors import InvalidInputError
from anabranch.wire.supervised import supervised

Calls = CallsCollection[Attempt]
_NOT_RECEIVED: Final = (
    "a subscriber gives its messages to handlers alone: to receive them, use receive of "
    "anabranch.client's consumers, which also acknowledges"
)


class SubscriberOptions(ConsumerOptions, RunOptions, total=False):
    """The options of `Client.subscribe` and of `run`. The three here are a queue's alone, which has
    the common ones besides: `concurrency`, `timeout_s`, `start`, `dead_letter` and deserializers.
    """

    messages_max: int
    lock_s: float | None
    delay_s: Backoff


class AnabranchSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber takes over from its broker or router."""

    parser = staticmethod(parse_message)
    decoder = staticmethod(decode_body)

    @property
    def ack_policy(self) -> AckPolicy:
        outer = self._outer_config.ack_policy
        given = outer if self._ack_policy is EMPTY else self._ack_policy
        return AckPolicy.NACK_ON_ERROR if given is EMPTY else given


class AnabranchSubscriberSpecification(SubscriberSpecification[Any]):
    """A subscriber as AsyncAPI shows it."""

    def __init__(
        self, outer: Any, about: SubscriberSpecificationConfig, calls: Calls, declared: str
    ) -> None:
        super().__init__(outer, about, calls)
        self._declared = declared

    @property
    def channel_labels(self) -> list[str]:
        return [topic_of(self._outer_config, self._declared)]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        topic, payload = self.channel_labels[0], resolve_payloads(self.get_payloads())
        return {self.name: channel(SubscriberSpec, topic, self.name, payload, self.description)}


class AnabranchSubscriber(SubscriberUsecase[Attempt]):
    """Has a consumer run its handlers, from `start` to `stop`.

    A consumer that fails ends the application, whose stop raises the error.
    """

    _outer_config: AnabranchConfig
    _consumer: StreamConsumer | QueueConsumer | None = None
    _running: asyncio.Task[None] | None = None

    def __init__(
        self,
        config: AnabranchSubscriberConfig,
        specification: AnabranchSubscriberSpecification,
        calls: Calls,
        who: tuple[str, str],
        queue: bool,
        options: dict[str, Any],
    ) -> None:
        super().__init__(config, specification, calls)
        self.subscription, self._consumer_name = who
        if self.ack_policy is AckPolicy.ACK_FIRST:
            raise SetupError(
                f"subscription {self.subscription}: ACK_FIRST is not offered, as a message is "
                "acknowledged when its handler ends; AckPolicy.ACK has it done after errors, too"
            )
        kinds = (QueueSettings, QueueRunSettings) if queue else (ConsumerSettings, RunSettings)
        names, run_names = (kind.__struct_fields__ for kind in kinds)
        if unknown := sorted(options.keys() - {*names, *run_names}):
            raise InvalidInputError(
                f"a subscriber with queue={queue} has no option {', '.join(unknown)}: it has "
                f"{', '.join([*names, *run_names])}"
            )
        consumer = {name: told for name, told in options.items() if name in names}
        self._run_options = {name: told for name, told in options.items() if name in run_names}
        if queue:
            self.settings: ConsumerSettings | QueueSettings = QueueSettings(**consumer)
            QueueRunSettings(**self._run_options).check(self._attempt)
        else:
            self.settings = stream = ConsumerSettings(**consumer)
            RunSettings(**self._run_options).check(self._attempt, stream.settle_s)

    @property
    def topic(self) -> str:
        """The topic, bare, with the prefixes of its routers."""
        return self.specification.channel_labels[0]

    @property
    def has_failed(self) -> bool:
        """True if its consumer has ended with an error."""
        task = self._running
        return task is not None and task.done() and not task.cancelled() and bool(task.exception())

    async def start(self) -> None:
        """Subscribes, and begins to work. Raises the errors of `Client.subscribe` and `run`."""
        await super().start()
        client = self._outer_config.client
        if self.calls and self._consumer is None and client is not None:
            who = (self.topic, self.subscription, self._consumer_name)
            if isinstance(self.settings, QueueSettings):
                self._consumer = await client.subscribe_queue(*who, self.settings)
            else:
                self._consumer = await client.subscribe(*who, self.settings)
            self._running = supervised(self._run(self._consumer), f"handlers of {self.topic}")
            await asyncio.sleep(0)  # what `run` refuses, it refuses at once
            if self._running.done():
                self._running.result()
        self._post_start()

    async def _run(self, consumer: StreamConsumer | QueueConsumer) -> None:
        try:
            await consumer.run(self._attempt, **self._run_options)
        except Exception as error:
            about = f"the consumer of {self.topic} has failed: {error}"
            self._log(logging.CRITICAL, about, exc_info=error)
            self._end_application()
            raise
        finally:
            self.running = False

    async def stop(self) -> None:
        """Starts nothing more, and waits for what runs, for the broker's `graceful_timeout`. In a
        handler it returns at once. Raises the error with which its consumer has failed.
        """
        self.running = False
        consumer, running = self._consumer, self._running
        if consumer is None or running is None:
            return
        run = consumer._run
        if run is not None and run.is_within:
            await consumer.stop(self._outer_config.graceful_timeout or 0.0)
            return
        self._consumer = self._running = None
        await consumer.stop(self._outer_config.graceful_timeout or 0.0)
        await running

    async def _attempt(self, message: Message, work: Work) -> None:
        """The handler of `run`."""
        attempt, error = Attempt(message, work), None
        try:
            await self.process_message(attempt)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the attempt's
            error = raised
        if isinstance(error, StopConsume | SystemExit):
            await self.stop()
        if isinstance(error, SystemExit):
            self._end_application()
        attempt.conclude(error, self.ack_policy)

    def _end_application(self) -> None:
        if app := self._outer_config.context.get("app"):
            app.exit()

    def get_log_context(self, message: StreamMessage[Attempt] | None) -> dict[str, str]:
        told = {"topic": self.topic, "subscription": self.subscription}
        return told | super().get_log_context(message)

    def _make_response_publisher(self, message: StreamMessage[Attempt]) -> list[PublisherProto]:
        return []  # no message has a `reply_to`

    async def get_one(self, *, timeout: float = 5) -> NoReturn:  # noqa: ASYNC109 - FastStream's
        raise FeatureNotSupportedException(_NOT_RECEIVED)

    def __aiter__(self) -> AsyncIterator[StreamMessage[Attempt]]:
        raise FeatureNotSupportedException(_NOT_RECEIVED)
