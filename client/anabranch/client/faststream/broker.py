"""`AnabranchBroker` and `AnabranchRouter`: what FastStream's applications are made of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Unpack

from fast_depends.dependencies import Dependant
from faststream._internal import configs
from faststream._internal.basic_types import LoggerProto, SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec

from anabranch.access.kafka_tokens import TokenSource
from anabranch.client import (
    Client,
    ClientError,
    Credentials,
    DeliveryResult,
    ProducerSettings,
    Tls,
)
from anabranch.client.faststream import publisher, subscriber
from anabranch.client.faststream.messages import Attempt
from anabranch.client.faststream.publisher import AnabranchConfig, AnabranchPublisher
from anabranch.client.faststream.subscriber import AnabranchSubscriber

_ID_CHARS: Final = 24
_PING_S: Final = 5.0


class AnabranchRegistrator(Registrator[Attempt, AnabranchConfig]):
    """Declares subscribers and publishers, on a broker or a router."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        subscription: str,
        consumer_name: str = "",
        queue: bool = False,
        ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **options: Unpack[subscriber.SubscriberOptions],
    ) -> AnabranchSubscriber:
        """Returns the decorator of a handler. `options` are those of `Client.subscribe` and of
        `run`, or with `queue` of `subscribe_queue` and its `run`. Raises InvalidInputError,
        SetupError.
        """
        outer: Any = self.config
        calls = subscriber.Calls()
        config = subscriber.AnabranchSubscriberConfig(_outer_config=outer, _ack_policy=ack_policy)
        about = configs.SubscriberSpecificationConfig(
            title_=title, description_=description, include_in_schema=include_in_schema
        )
        made = AnabranchSubscriber(
            config,
            subscriber.AnabranchSubscriberSpecification(outer, about, calls, topic),
            calls,
            (subscription, consumer_name),
            queue,
            dict(options),
        )
        super().subscriber(made)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        key: publisher.KeyOf = None,
        headers: dict[str, Any] | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> AnabranchPublisher:
        """Returns the decorator of a handler whose results go to a topic. `key` may be a function
        of the result. An AnabranchResponse has a key of its own.
        """
        outer: Any = self.config
        about = configs.PublisherSpecificationConfig(
            title_=title,
            description_=description,
            schema_=schema,
            include_in_schema=include_in_schema,
        )
        specification = publisher.AnabranchPublisherSpecification(outer, about, topic)
        config = configs.PublisherUsecaseConfig(_outer_config=outer)
        made = AnabranchPublisher(config, specification, key, headers)
        super().publisher(made)
        return made


class AnabranchRouter(AnabranchRegistrator, BrokerRouter[Attempt, AnabranchConfig]):
    """Subscribers and publishers for `broker.include_router`. `prefix` stands before the topics as
    they were declared: `topic://public/default/`, for topics declared by name alone.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        config = AnabranchConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=(), routers=())


class AnabranchBroker(AnabranchRegistrator, BrokerUsecase[Attempt, Client, AnabranchConfig]):
    """A cluster of Anabranch for an application of FastStream.

    It takes what `anabranch.client.Client` takes, and makes one at each start. `producer` has the
    settings of its producers. A stop waits `graceful_timeout` seconds for handlers, and then
    cancels them.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        kafka: Mapping[str, Any] | Path | str | None = None,
        kafka_token: TokenSource | None = None,
        producer: ProducerSettings | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        description: str | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
    ) -> None:
        scheme, _, addresses = url.partition("://")
        super().__init__(
            config=AnabranchConfig(
                producer=publisher.TopicProducers(producer),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                logger=make_logger_state(logger, log_level, AnabranchLogs),
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                url=[f"{scheme}://{each.strip()}" for each in addresses.split(",")],
                protocol=scheme,
                protocol_version=None,
                description=description,
                tags=(),
                security=None,
            ),
            routers=(),
            url=url,
            tls=tls,
            credentials=credentials,
            kafka=kafka,
            kafka_token=kafka_token,
        )
        Client(**self._connection_kwargs)  # wrong options are told now

    async def _connect(self) -> Client:
        config = self.config.broker_config
        config.client = client = Client(**self._connection_kwargs)
        config.producer.connect(client, config)
        return client

    async def start(self) -> None:
        """Subscribes all. If one fails, none is left."""
        await self.connect()
        try:
            await super().start()
        except BaseException:
            with contextlib.suppress(Exception):
                await self.stop()
            raise

    async def stop(self, *failure: Any) -> None:
        """Ends the subscribers, then the producers. Raises the errors of consumers that failed."""
        config, client = self.config.broker_config, self._connection
        try:
            await super().stop(*failure)
        finally:
            self._connection = config.client = None
            config.producer.connect(None, config)
            if client is not None:
                await client.close()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - FastStream's
        """Tells whether a node answers, and no subscriber has failed."""
        client, patience_s = self._connection, timeout or _PING_S
        if client is None or any(getattr(each, "has_failed", False) for each in self.subscribers):
            return False
        try:
            async with asyncio.timeout(patience_s):
                node = await client.nodes.connect(lambda _: None, patience_s)
        except (ClientError, TimeoutError):
            return False
        node.close("it answers")
        return True

    async def publish(
        self,
        message: SendableMessage = None,
        topic: str = "",
        **options: Unpack[publisher.PublishOptions],
    ) -> DeliveryResult:
        """Returns once Kafka has the message. Raises the errors of `Producer.send`, and those of
        `Client.create_producer`.
        """
        cmd = publisher.AnabranchPublishCommand(message, topic, **options)
        cmd.correlation_id = cmd.correlation_id or self.config.id_generator()
        result: DeliveryResult = await self._basic_publish(cmd, producer=self._producer)
        return result

    async def request(self, *_args: Any, **_options: Any) -> NoReturn:
        await self.config.broker_config.producer.request()


class AnabranchLogs(DefaultLoggerStorage):
    """The logger of a broker that is given none."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        pass  # its lines have no columns

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        known = self._get_logger_ref()
        if known is None:
            fmt = "%(asctime)s %(levelname)-8s - %(topic)s | %(subscription)s | %(message_id)s - "
            known = get_broker_logger(
                name="anabranch",
                default_context={"topic": "", "subscription": ""},
                message_id_ln=_ID_CHARS,
                fmt=f"{fmt}%(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(known)
        return known
