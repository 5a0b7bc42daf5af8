"""Nodes and SDK on a Kafka that asks for tokens, which end soon and are not always to be had."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from anabranch import client as sdk
from anabranch.access import kafka_tokens
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from support import token_provider
from support.kafka_files import written
from support.local_topic import LocalTopic, local_topic
from support.oauth_kafka import OauthKafka
from support.waiting import WAIT_S, until

LIFE_S = 20.0  # librdkafka looks once a second, and Kafka lets nobody show two tokens in a second
PLAIN = {"security.protocol": "sasl_plaintext"}
NAMED = "support.token_provider:token"


@pytest.fixture(scope="module")
def oauth_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OauthKafka]:
    token_provider.giver.life_s = LIFE_S
    with OauthKafka(tmp_path_factory.mktemp("oauth"), token_provider.giver).running() as kafka:
        yield kafka


@pytest.fixture(autouse=True)
def nothing_is_told(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """No token is in what anybody logs or prints."""
    with caplog.at_level(logging.DEBUG):
        yield
    logged = caplog.text + "".join(capfd.readouterr())
    assert not [token for token in token_provider.giver.given if token in logged]


@contextlib.asynccontextmanager
async def topic_of_a_node(
    kafka: OauthKafka, prefix: str, folder: Path
) -> AsyncIterator[LocalTopic]:
    settings = {
        "kafkaPropertiesFile": written(folder / "kafka.properties", PLAIN),
        "kafkaTokenProvider": NAMED,
    }
    async with local_topic(kafka, prefix, folder, 2, **settings) as at:
        yield at


async def pass_on(
    number: int, producer: sdk.Producer, stream: sdk.StreamConsumer, queue: sdk.QueueConsumer
) -> None:
    """Sends a message, which each consumer gets."""
    value = b"%d" % number
    await producer.send(value, value)
    read = await stream.receive(WAIT_S)
    stream.acknowledge(read)
    taken = await queue.receive(WAIT_S)
    queue.acknowledge(taken)
    assert (read.value, taken.value) == (value, value)


async def drained(consumer: sdk.StreamConsumer) -> None:
    """Receives until nothing comes for longer than librdkafka takes to tell what is wrong."""
    while True:
        consumer.acknowledge(await consumer.receive(25))


async def test_tokens_are_renewed_while_node_and_clients_are_busy_and_while_they_are_idle(
    oauth_kafka: OauthKafka, topic_prefix: str, tmp_path: Path
) -> None:
    giver = oauth_kafka.giver
    calls = giver.calls
    async with topic_of_a_node(oauth_kafka, topic_prefix, tmp_path) as at:
        url = at.node.settings.service_url
        async with sdk.Client(url, kafka=PLAIN, kafka_token=NAMED) as client:
            assert not [token for token in giver.given if token in repr(vars(client))]
            producer = await client.create_producer(at.topic)
            stream = await client.subscribe(at.topic, "stream")
            queue = await client.subscribe_queue(at.topic, "queue")
            number = 0
            busy_until = asyncio.get_running_loop().time() + LIFE_S
            while asyncio.get_running_loop().time() < busy_until:
                await pass_on(number, producer, stream, queue)
                number += 1
                await asyncio.sleep(0.05)
            renewed = giver.calls
            await until(lambda: giver.calls >= renewed + 2, WAIT_S)  # idle for more than a life
            await at.node.operations.topics.split(at.topic, 0)
            await pass_on(number, producer, stream, queue)
            assert len(await client.peek(at.topic, 1, start="earliest")) == 1
        # Node and SDK, some twenty clients of Kafka, share one cache.
        assert giver.calls - calls < 20


async def test_twenty_clients_of_kafka_ask_for_one_token(oauth_kafka: OauthKafka) -> None:
    servers = oauth_kafka.bootstrap_servers
    calls = 0

    def count() -> tuple[str, float]:
        nonlocal calls
        calls += 1
        token, expires_at = oauth_kafka.giver.token()
        return token, expires_at

    def ask(_: int) -> int:
        security = kafka_tokens.at(kafka_tokens.with_tokens(PLAIN, count), servers)
        return len(KafkaConnection(servers, security).admin().list_topics(timeout=WAIT_S).brokers)

    assert await asyncio.gather(*(asyncio.to_thread(ask, n) for n in range(20))) == [1] * 20
    assert calls == 1


@pytest.mark.long
@pytest.mark.lasting
async def test_the_words_of_a_provider_that_fails_reach_whoever_waits_and_it_recovers(
    oauth_kafka: OauthKafka, topic_prefix: str, tmp_path: Path
) -> None:
    failure = ""

    def give() -> tuple[str, float]:
        if failure:
            raise LookupError(failure)
        return oauth_kafka.giver.token()

    async with topic_of_a_node(oauth_kafka, topic_prefix, tmp_path) as at:
        url = at.node.settings.service_url
        async with sdk.Client(url, kafka=PLAIN, kafka_token=give) as client:
            failure = f"the vault is shut to {oauth_kafka.giver.token()[0]}"
            for opened in (
                client.create_producer(at.topic),
                client.subscribe(at.topic, "stream"),
                client.subscribe_queue(at.topic, "queue"),
                client.peek(at.topic),
            ):
                with pytest.raises(sdk.CredentialsError, match="LookupError: the vault is shut"):
                    async with asyncio.timeout(WAIT_S):
                        await opened
            failure = ""
            producer = await client.create_producer(at.topic)
            stream = await client.subscribe(at.topic, "stream")
            queue = await client.subscribe_queue(at.topic, "queue")
            await pass_on(0, producer, stream, queue)
            failure = "the vault is shut again"
            # The present token lasts for a while, and so does each connection.
            beside = await client.create_producer(at.topic, delivery_timeout_s=5)
            said = ""
            while not said:
                try:
                    await beside.send(b"", b"key")
                except sdk.DeliveryError as error:
                    said = str(error)
                await asyncio.sleep(0.1)
            assert "LookupError: the vault is shut again" in said
            with pytest.raises(sdk.DeadlineError, match="the vault is shut again"):
                await drained(stream)
            failure = ""
            await producer.send(b"1", b"key")
            while (read := await stream.receive(WAIT_S)).value != b"1":
                stream.acknowledge(read)
            while (taken := await queue.receive(WAIT_S)).value != b"1":
                queue.acknowledge(taken)


async def test_a_node_that_gets_no_token_ends_and_says_why(
    oauth_kafka: OauthKafka, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {
        "kafkaPropertiesFile": written(tmp_path / "kafka.properties", PLAIN),
        "kafkaTokenProvider": "support.token_provider:none",
    }
    topic = local_topic(oauth_kafka, topic_prefix, tmp_path, 1, **settings)
    with pytest.raises(KafkaUnreachableError, match="fails: ValueError: the vault is shut"):
        async with asyncio.timeout(WAIT_S), topic:
            pass


async def test_oidc_needs_no_provider(
    oauth_kafka: OauthKafka, topic_prefix: str, tmp_path: Path
) -> None:
    with oauth_kafka.giver.endpoint() as endpoint:
        security = oauth_kafka.oidc(endpoint)
        file = written(tmp_path / "kafka.properties", security)
        topic = local_topic(oauth_kafka, topic_prefix, tmp_path, 1, kafkaPropertiesFile=file)
        async with topic as at:
            client = sdk.Client(at.node.settings.service_url, kafka=security)
            async with client:
                assert kafka_tokens.OAUTH_CB not in client.kafka
                producer = await client.create_producer(at.topic)
                stream = await client.subscribe(at.topic, "stream")
                queue = await client.subscribe_queue(at.topic, "queue")
                calls = oauth_kafka.giver.calls
                await pass_on(0, producer, stream, queue)
                await until(lambda: oauth_kafka.giver.calls > calls, WAIT_S)
                await pass_on(1, producer, stream, queue)
