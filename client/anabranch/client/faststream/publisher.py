"""Publishing: one producer of the SDK for each topic, kept until the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import SendableMessage
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
)
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import PublisherMiddleware
from faststream.exceptions import NOT_CONNECTED_YET, FeatureNotSupportedException, IncorrectState
from faststream.response import PublishCommand, PublishType, Response
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from anabranch.client import Client, DeliveryResult, Producer, ProducerSettings
from anabranch.client.faststream.messages import decode_body, parse_message
from anabranch.core.names import parse_scalable_topic

Key = bytes | str | None
KeyOf = Key | Callable[[Any], Key]  # a function takes the body that is published
_SpecT = TypeVar("_SpecT", SubscriberSpec, PublisherSpec)


class PublishOptions(TypedDict, total=False):
    """The parts of a message besides its body."""

    key: Key
    headers: dict[str, Any] | None
    correlation_id: str | None
    event_time_ms: int | None


class AnabranchPublishCommand(PublishCommand):
    """A message on its way to a producer, as middlewares see it."""

    def __init__(
        self, body: Any, destination: str = "", /, **options: Unpack[PublishOptions]
    ) -> None:
        super().__init__(
            body,
            destination=destination,
            headers=options.get("headers"),
            correlation_id=options.get("correlation_id"),
            _publish_type=PublishType.PUBLISH,
        )
        self.key = options.get("key")
        self.event_time_ms = options.get("event_time_ms")

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> AnabranchPublishCommand:
        if isinstance(cmd, AnabranchPublishCommand):
            return cmd
        return cls(cmd.body, headers=cmd.headers, correlation_id=cmd.correlation_id)


class AnabranchResponse(Response):
    """A handler's result for its publishers, with a key of its own."""

    def __init__(self, body: SendableMessage, **options: Unpack[PublishOptions]) -> None:
        headers, correlation_id = options.get("headers"), options.get("correlation_id")
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self._options = options

    def as_publish_command(self) -> AnabranchPublishCommand:
        about: PublishOptions = {
            **self._options,
            "headers": self.headers,
            "correlation_id": self.correlation_id,
        }
        return AnabranchPublishCommand(self.body, **about)


class TopicProducers(ProducerProto[AnabranchPublishCommand]):
    """Sends to any topic, by a producer for each that it makes at the first message."""

    _parser = staticmethod(parse_message)
    _decoder = staticmethod(decode_body)
    _client: Client | None = None

    def __init__(self, settings: ProducerSettings | None = None) -> None:
        self.settings = settings or ProducerSettings()
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None

    def connect(self, client: Client | None, config: BrokerConfig) -> None:
        """Takes the client, which closes the producers when it closes."""
        self._client = client
        self._producers: dict[str, Producer] = {}
        self._making = asyncio.Lock()
        self.serializer = config.fd_config._serializer
        self.codec = config.broker_codec or DefaultCodec()

    async def publish(self, cmd: AnabranchPublishCommand) -> DeliveryResult:
        """Returns once Kafka has the message. Raises the errors of `Producer.send`, and those of
        `Client.create_producer`.
        """
        body, headers = await self.encoded(cmd)
        producer = await self._producer(parse_scalable_topic(cmd.destination))
        return await producer.send(body, cmd.key, headers=headers, event_time_ms=cmd.event_time_ms)

    async def encoded(self, cmd: AnabranchPublishCommand) -> tuple[Any, dict[str, Any]]:
        """Returns value and headers. None with a key is a tombstone, without a value."""
        body, content_type = None, None
        if cmd.body is not None or cmd.key is None:
            body, content_type = await self.codec.encode(cmd.body, self.serializer)
        own = {"content-type": content_type, "correlation_id": cmd.correlation_id}
        return body, {name: told for name, told in own.items() if told} | cmd.headers

    async def _producer(self, topic: str) -> Producer:
        if self._client is None:
            raise IncorrectState(NOT_CONNECTED_YET)
        if topic not in self._producers:
            async with self._making:
                if topic not in self._producers:
                    made = await self._client.create_producer(topic, self.settings)
                    self._producers[topic] = made
        return self._producers[topic]

    async def request(self, cmd: Any = None) -> NoReturn:
        raise FeatureNotSupportedException(
            "request is not offered: each process that asks would need a topic and a consumer for "
            "its answers; publish, and subscribe to a topic of answers"
        )

    publish_batch = request  # `BrokerUsecase` refuses it before


@dataclass(kw_only=True)
class AnabranchConfig(BrokerConfig):
    """What brokers and routers hand down. `client` is there while the broker is connected."""

    producer: TopicProducers = field(default_factory=TopicProducers)
    client: Client | None = None


def topic_of(config: BrokerConfig, declared: str) -> str:
    """Returns a topic, bare, with the prefixes of the routers around it."""
    return f"{config.prefix}{declared}".removeprefix("topic://")


def channel(kind: type[_SpecT], topic: str, name: str, payload: Any, about: str | None) -> _SpecT:
    """Returns a topic's channel for AsyncAPI."""
    message = Message(title=f"{name}:Message", payload=payload)
    operation = Operation(message=message, bindings=None)
    address = f"topic://{parse_scalable_topic(topic)}"
    return kind(address=address, description=about, operation=operation, bindings=None)


class AnabranchPublisherSpecification(PublisherSpecification[Any, PublisherSpecificationConfig]):
    """A publisher as AsyncAPI shows it."""

    def __init__(self, outer: Any, about: PublisherSpecificationConfig, declared: str) -> None:
        super().__init__(outer, about)
        self._declared = declared

    @property
    def topic(self) -> str:
        return topic_of(self._outer_config, self._declared)

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        about = self.config.description_
        return {self.name: channel(PublisherSpec, self.topic, self.name, payload, about)}


class AnabranchPublisher(PublisherUsecase):
    """Publishes to one topic: what it is given, and the results of handlers that it decorates."""

    _outer_config: AnabranchConfig

    def __init__(
        self,
        config: PublisherUsecaseConfig,
        specification: AnabranchPublisherSpecification,
        key: KeyOf,
        headers: dict[str, Any] | None,
    ) -> None:
        super().__init__(config, specification)
        self._specification = specification
        self.key = key
        self.headers = headers or {}

    @property
    def topic(self) -> str:
        """The topic, bare, with the prefixes of its routers."""
        return self._specification.topic

    async def publish(
        self, message: SendableMessage, /, **options: Unpack[PublishOptions]
    ) -> DeliveryResult:
        """Returns once Kafka has the message."""
        cmd = AnabranchPublishCommand(message, **options)
        cmd.correlation_id = cmd.correlation_id or self._outer_config.id_generator()
        result: DeliveryResult = await self._publish(cmd, _extra_middlewares=())
        return result

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> Any:
        own = AnabranchPublishCommand.from_cmd(cmd)
        own.destination = self.topic
        own.add_headers(self.headers, override=False)
        if own.key is None:
            own.key = self.key(own.body) if callable(self.key) else self.key
        producer = self._outer_config.producer
        return await self._basic_publish(
            own, producer=producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, *_args: Any, **_options: Any) -> NoReturn:
        await self._outer_config.producer.request()
