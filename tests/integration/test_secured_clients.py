"""The SDK, administration and the command line against nodes with TLS that ask who comes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import time
from collections.abc import Coroutine, Iterator
from urllib.parse import urlsplit

import jwt
import pytest

from anabranch import client as sdk
from anabranch.admin import Admin
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.security import ADMIN, DevSecurity
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.waiting import WAIT_S, eventually
from support.wire import HOST

BRIEF_S = 5
_names = (f"public/default/secured-{number}" for number in itertools.count())


class Secured:
    """Two nodes, and what to show them."""

    def __init__(self, cluster: TopicCluster, security: DevSecurity) -> None:
        self.cluster = cluster
        self.security = security
        self.tls = sdk.Tls(ca_file=security.authority_file)
        self.token = sdk.Token(security.token_file)
        self.web_urls = ",".join(node.url for node in cluster.nodes)

    def made(self, role: str = ADMIN, seconds: float = 3_600) -> str:
        claims = {"sub": role, "exp": int(time.time() + seconds)}
        return jwt.encode(claims, self.security.secret_file.read_bytes(), "HS256")

    def client(self, token: sdk.Token | None = None) -> sdk.Client:
        return sdk.Client(self.cluster.url, tls=self.tls, credentials=token or self.token)

    def topic(self, segments: int = 2) -> str:
        with Admin(self.web_urls, tls=self.tls, credentials=self.token) as admin:
            name = next(_names)
            admin.scalable_topics.create_scalable_topic(name, segments)
        return f"topic://{name}"


@pytest.fixture(scope="module")
def secured(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = DevSecurity(folder / "security")
    eager = "tlsCertRefreshCheckDurationSec=0.1"
    prefix = f"{folder.name}."
    with topic_cluster(kafka, prefix, folder, eager, secured=security) as cluster:
        yield Secured(cluster, security)
        told = "".join(node.log_file.read_text(errors="replace") for node in cluster.nodes)
    assert security.token_file.read_text().rpartition(".")[2] not in told


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TEST_S))


async def test_all_kinds_of_parts_work_by_tls_and_token(secured: Secured) -> None:
    topic = secured.topic()
    wanted = {b"%d" % number for number in range(30)}
    async with secured.client() as client:
        producer = await client.create_producer(topic, linger_ms=0)
        await producer.send_many((f"k{n % 7}", b"%d" % n) for n in range(30))
        await producer.flush()
        async with await client.subscribe(topic, "stream") as stream:
            assert {(await stream.receive(WAIT_S)).value for _ in wanted} == wanted
        async with await client.subscribe_queue(topic, "queue") as queue:
            found: set[bytes] = set()
            while found != wanted:
                message = await queue.receive(WAIT_S)
                found.add(message.value)
                queue.acknowledge(message)
        async with await client.subscribe_checkpoint(topic, "files") as positions:
            seen: set[bytes] = set()
            while seen != wanted:
                seen |= set((await positions.receive_many(timeout_s=WAIT_S)).values())
        selection = sdk.TopicSelection("public/default", topic.rpartition("/")[2])
        async with await client.watch_topics(selection) as watch:
            assert watch.topics == {topic.removeprefix("topic://")}
        async with await client.subscribe_topics(selection, "many") as many:
            assert {(await many.receive(WAIT_S)).value for _ in wanted} == wanted
        assert {each.value for each in await client.peek(topic, 30, start="earliest")} == wanted


def test_a_consumer_notices_neither_that_its_token_expires_nor_another_certificate(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    topic = secured.topic()
    made: list[str] = []

    async def fetched() -> str:
        made.append(secured.made(seconds=BRIEF_S))
        return made[-1]

    async def test() -> None:
        async with secured.client(sdk.Token(fetched)) as client:
            producer = await client.create_producer(topic, linger_ms=0)
            consumer = await client.subscribe(topic, "stream")
            await producer.send(b"first", key="a")
            assert (await consumer.receive(WAIT_S)).value == b"first"
            caplog.clear()
            before = len(made)

            async def all_renewed() -> bool:
                return len(made) >= 2 * before  # each connection at least once, on average

            DevSecurity(secured.security.folder)  # makes the nodes' certificate anew
            renewed = ssl.PEM_cert_to_DER_cert((secured.security.folder / "node.pem").read_text())

            async def all_show_it() -> bool:
                ports = [urlsplit(node.service_url()).port for node in secured.cluster.nodes]
                shown = [ssl.get_server_certificate((HOST, port or 0)) for port in ports]
                return {ssl.PEM_cert_to_DER_cert(each) for each in shown} == {renewed}

            await eventually(all_show_it, WAIT_S)
            await eventually(all_renewed, WAIT_S)
            await producer.send(b"last", key="a")
            assert (await consumer.receive(WAIT_S)).value == b"last"
            events = {getattr(record, "event", "") for record in caplog.records}
            assert not events & {"consumer.session_interrupted", "watch.lost", "watch.failing"}

    with caplog.at_level(logging.INFO, "anabranch"):
        run(test())
    assert not any(token in caplog.text for token in made)


async def test_a_consumer_ends_when_its_token_expires_and_cannot_be_renewed(
    secured: Secured,
) -> None:
    topic = secured.topic()
    async with secured.client(sdk.Token(secured.made(seconds=BRIEF_S))) as client:
        with pytest.raises(sdk.AuthenticationError, match="Give another token"):
            await (await client.subscribe(topic, "stream")).receive(WAIT_S)


async def test_who_lacks_a_right_is_told_at_once(secured: Secured) -> None:
    topic = secured.topic()
    with Admin(secured.web_urls, tls=secured.tls, credentials=secured.token) as admin:
        admin.scalable_topics.grant_permission(topic, "bob", ["produce"])
    for role, kind, why in (
        ("eve", sdk.TopicNotFoundError, "not found"),
        ("bob", sdk.ForbiddenError, "bob"),
    ):
        async with secured.client(sdk.Token(secured.made(role))) as client:
            with pytest.raises(kind, match=why):
                await client.subscribe(topic, "stream")
