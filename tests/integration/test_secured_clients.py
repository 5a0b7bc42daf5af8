"""The SDK, administration and the command line against nodes with TLS that ask who comes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import subprocess
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path

import jwt
import pytest

from anabranch.admin import Admin, AsyncAdmin
from anabranch.admin import AuthenticationError as RefusedAdminError
from anabranch.admin import ForbiddenError as ForbiddenAdminError
from anabranch.admin import TlsError as AdminTlsError
from anabranch.client import (
    AuthenticationError,
    Client,
    CredentialsError,
    ForbiddenError,
    Tls,
    TlsError,
    Token,
    TopicNotFoundError,
    TopicSelection,
    sync,
)
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.security import ADMIN, DevSecurity
from support.authority import Authority
from support.processes import COMMAND, START_S_MAX
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

WAIT_S = 60.0
BRIEF_S = 5
_names = (f"public/default/secured-{number}" for number in itertools.count())


class Secured:
    """Two nodes, and what to show them."""

    def __init__(self, cluster: TopicCluster, security: DevSecurity) -> None:
        self.cluster = cluster
        self.security = security
        self.tls = Tls(ca_file=security.authority_file)
        self.token = Token(security.token_file)
        self.web_urls = ",".join(node.url for node in cluster.nodes)

    def made(self, role: str = ADMIN, seconds: float = 3_600) -> str:
        claims = {"sub": role, "exp": int(time.time() + seconds)}
        return jwt.encode(claims, self.security.secret_file.read_bytes(), "HS256")

    def client(self, token: Token | None = None) -> Client:
        return Client(self.cluster.url, tls=self.tls, credentials=token or self.token)

    def topic(self, segments: int = 2) -> str:
        with Admin(self.web_urls, tls=self.tls, credentials=self.token) as admin:
            name = next(_names)
            admin.scalable_topics.create_scalable_topic(name, segments)
        return f"topic://{name}"


@pytest.fixture(scope="module")
def secured(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = DevSecurity(folder / "security")
    patient = "perIpLimitExemptAddresses=127.0.0.1"  # with who is wrong so often
    prefix = f"{folder.name}."
    with topic_cluster(kafka, prefix, folder, patient, secured=security) as cluster:
        yield Secured(cluster, security)
        told = "".join(node.log_file.read_text(errors="replace") for node in cluster.nodes)
    assert security.token_file.read_text().rpartition(".")[2] not in told


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TEST_S))


def test_all_kinds_of_parts_work_by_tls_and_token(secured: Secured) -> None:
    topic = secured.topic()
    wanted = {b"%d" % number for number in range(30)}

    async def test() -> None:
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
            name = topic.rpartition("/")[2]
            selection = TopicSelection("public/default", name)
            async with await client.watch_topics(selection) as watch:
                assert watch.topics == {topic.removeprefix("topic://")}
            async with await client.subscribe_topics(selection, "many") as many:
                assert {(await many.receive(WAIT_S)).value for _ in wanted} == wanted
            assert {each.value for each in await client.peek(topic, 30, start="earliest")} == wanted

    run(test())


def test_the_controller_may_be_another_node_and_segments_change_meanwhile(
    secured: Secured,
) -> None:
    topic = secured.topic(segments=1)

    async def test() -> None:
        admin = AsyncAdmin(secured.web_urls, tls=secured.tls, credentials=secured.token)
        async with admin, secured.client() as client:
            producer = await client.create_producer(topic, linger_ms=0)
            await producer.send(b"before", key="a")
            async with await client.subscribe(topic, "stream") as consumer:
                assert (await consumer.receive(WAIT_S)).value == b"before"
                assert consumer.acknowledge_all()
                # Asked of each node: one of them sends it on, and is followed.
                for url in secured.web_urls.split(","):
                    async with AsyncAdmin(url, tls=secured.tls, credentials=secured.token) as each:
                        layout = await each.scalable_topics.get_metadata(topic)
                        part = max(n for n, s in layout.segments.items() if s.active)
                        await each.scalable_topics.split_segment(topic, int(part))
                await producer.send(b"after", key="a")
                assert (await consumer.receive(WAIT_S)).value == b"after"
                consumer.acknowledge_all()
            assert (await admin.tenants.get_tenants()) == ["public"]

    run(test())


def test_a_script_without_asyncio_has_the_same(secured: Secured) -> None:
    topic = secured.topic()
    with sync.connect(
        secured.cluster.url, tls=secured.tls, credentials=Token(lambda: secured.made())
    ) as client:
        with client.create_producer(topic) as producer:
            producer.send(b"one")
        with client.subscribe(topic, "stream") as consumer:
            assert consumer.receive(WAIT_S).value == b"one"


def test_a_consumer_does_not_notice_that_its_token_expires(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    topic = secured.topic()
    made: list[str] = []

    async def fetched() -> str:
        made.append(secured.made(seconds=BRIEF_S))
        return made[-1]

    async def test() -> None:
        async with secured.client(Token(fetched)) as client:
            producer = await client.create_producer(topic, linger_ms=0)
            consumer = await client.subscribe(topic, "stream")
            await producer.send(b"first", key="a")
            assert (await consumer.receive(WAIT_S)).value == b"first"
            caplog.clear()
            before = len(made)

            async def all_renewed() -> bool:
                return len(made) >= 2 * before  # each connection at least once, on average

            await eventually(all_renewed, WAIT_S)
            await producer.send(b"last", key="a")
            assert (await consumer.receive(WAIT_S)).value == b"last"
            events = {getattr(record, "event", "") for record in caplog.records}
            assert not events & {"consumer.session_interrupted", "watch.lost", "watch.failing"}

    with caplog.at_level(logging.INFO, "anabranch"):
        run(test())
    assert not any(token in caplog.text for token in made)


def test_a_consumer_ends_when_its_token_expires_and_cannot_be_renewed(secured: Secured) -> None:
    topic = secured.topic()

    async def test() -> None:
        async with secured.client(Token(secured.made(seconds=BRIEF_S))) as client:
            with pytest.raises(AuthenticationError, match="Give another token"):
                await (await client.subscribe(topic, "stream")).receive(WAIT_S)

    run(test())


def test_what_is_wrong_is_told_at_once(secured: Secured, tmp_path: Path) -> None:
    topic = secured.topic()
    url = secured.cluster.url
    stranger = Tls(ca_file=Authority(tmp_path / "other").file)
    expired = Token(secured.made(seconds=-60))

    async def refused(kind: type[Exception], why: str, client: Client) -> None:
        async with client:
            with pytest.raises(kind, match=why):
                await client.subscribe(topic, "stream")

    async def test() -> None:
        await refused(TlsError, "not trusted", Client(url, tls=stranger, credentials=secured.token))
        await refused(AuthenticationError, "Show who you are", Client(url, tls=secured.tls))
        await refused(AuthenticationError, "expired", secured.client(expired))
        nowhere = secured.client(Token(tmp_path / "nothing"))
        await refused(CredentialsError, "cannot be read", nowhere)
        await refused(TopicNotFoundError, "not found", secured.client(Token(secured.made("eve"))))
        await refused(ForbiddenError, "bob", secured.client(Token(secured.made("bob"))))

    def look(tls: Tls, token: Token | None) -> None:
        with Admin(secured.web_urls, tls=tls, credentials=token) as admin:
            admin.tenants.get_tenants()

    with Admin(secured.web_urls, tls=secured.tls, credentials=secured.token) as admin:
        admin.scalable_topics.grant_permission(topic, "bob", ["produce"])
    run(test())
    with pytest.raises(AdminTlsError, match="not trusted"):
        look(stranger, secured.token)
    with pytest.raises(RefusedAdminError, match="Show who you are"):
        look(secured.tls, None)
    with pytest.raises(RefusedAdminError, match="expired"):
        look(secured.tls, expired)
    with pytest.raises(ForbiddenAdminError, match="eve"):
        look(secured.tls, Token(secured.made("eve")))


def test_the_command_line_shows_who_asks(secured: Secured, tmp_path: Path) -> None:
    topic = secured.topic().removeprefix("topic://")
    environment = {
        "ANABRANCH_URL": secured.cluster.nodes[0].url,
        "ANABRANCH_TLS_CA": str(secured.security.authority_file),
        "ANABRANCH_TOKEN_FILE": str(secured.security.token_file),
    }

    def ran(*words: str, **changed: str | None) -> subprocess.CompletedProcess[str]:
        told = {**os.environ, **environment, **changed}
        return subprocess.run(
            [*COMMAND, *words],
            env={name: value for name, value in told.items() if value is not None},
            input="a\tone\nb\ttwo\n",
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
            check=False,
        )

    assert topic in ran("topics", "list", "public/default").stdout
    produced = ran("topics", "produce", topic)
    assert produced.returncode == 0, produced.stderr
    consumed = ran("topics", "consume", topic, "--subscription", "s", "--max", "2")
    assert (consumed.returncode, len(consumed.stdout.splitlines())) == (0, 2), consumed.stderr
    own = {"ANABRANCH_TOKEN_FILE": None, "ANABRANCH_TOKEN": secured.made()}
    assert ran("brokers", **own).returncode == 0
    flagged = ("--token-file", str(secured.security.token_file), "brokers")
    assert ran(*flagged, **{**own, "ANABRANCH_TOKEN": "wrong"}).returncode == 0
    checked = ran("doctor", "--url", environment["ANABRANCH_URL"])
    assert "pulsar+ssl://" in checked.stdout

    wrong = Authority(tmp_path / "other").file
    for changed, why in (
        ({"ANABRANCH_TOKEN_FILE": None}, "Show who you are"),
        ({**own, "ANABRANCH_TOKEN": secured.made(seconds=-60)}, "expired"),
        ({**own, "ANABRANCH_TOKEN": secured.made("eve")}, ""),
        ({"ANABRANCH_TOKEN_FILE": str(tmp_path / "nothing")}, "cannot be read"),
        ({"ANABRANCH_TLS_CA": str(wrong)}, "not trusted"),
        ({"ANABRANCH_TLS_CA": None}, "not trusted"),
    ):
        for words in (("tenants", "list"), ("topics", "produce", topic)):
            said = ran(*words, **changed)
            output = said.stdout + said.stderr
            assert said.returncode in (1, 2), (changed, words, output)
            assert why in output, (changed, words, output)
            assert "Traceback" not in output
            assert "eyJ" not in output
