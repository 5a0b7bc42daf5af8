"""Appends whose outcome the producer cannot know, because its connection was cut, then the seal."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from anabranch.client import Client, DeliveryResult, Producer, UnknownOutcomeError
from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.hand_made_topic import HandMadeTopic
from support.processes import START_S_MAX, STOP_S_MAX
from support.produce_proxy import Append, Deed, ProduceProxy
from support.tcp_proxy import TcpProxy
from support.waiting import until

pytestmark = pytest.mark.integration

_HOST = "127.0.0.1"
_ALONE = 3  # so many messages are acknowledged before there is trouble
_REFUSED_MAX = 4  # times


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, TcpProxy]]:
    """A Kafka with a second listener that is reached by a proxy."""
    listens = ports.free_port(_HOST)
    with (
        TcpProxy(listens) as proxy,
        EmbeddedKafka(
            tmp_path_factory.mktemp("proxied"), second_listener=(listens, proxy.port)
        ) as kafka,
    ):
        yield kafka, proxy


Body = Callable[[HandMadeTopic, Producer], Awaitable[None]]


def run(
    proxied: tuple[EmbeddedKafka, TcpProxy],
    prefix: str,
    body: Body,
    segments: int = 2,
    **settings: Any,
) -> None:
    kafka, proxy = proxied

    async def test() -> None:
        advertised = f"{_HOST}:{proxy.port}"
        bootstrap = kafka.bootstrap_servers
        async with (
            HandMadeTopic(
                prefix, bootstrap, advertised=advertised, segments=segments, buckets=2
            ) as topic,
            Client(topic.url) as client,
        ):
            await body(topic, await client.create_producer(topic.name, linger_ms=0, **settings))

    asyncio.run(test())


async def _send(producer: Producer, numbers: range, sent: dict[bytes, list[bytes]]) -> None:
    for number in numbers:
        key, value = b"key-%d" % (number % 40), b"%d" % number
        await producer.post(value, key)
        sent.setdefault(key, []).append(value)


def _stored(topic: HandMadeTopic) -> int:
    return sum(sum(topic.ends(part)) for part in topic.layout.segments.values())


def test_what_arrived_before_the_cut_is_not_sent_again_to_the_child(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, producer: Producer) -> None:
        sent: dict[bytes, list[bytes]] = {}
        await _send(producer, range(200), sent)
        await producer.flush(40)
        proxy.hold_answers()
        await _send(producer, range(200, 400), sent)
        await until(lambda: _stored(topic) > 200)  # some arrived, and nobody has been told
        children = topic.layout.split_children(0)
        topic.begin((0,), children)
        await topic.make(children)
        ends = await topic.seal()
        proxy.cut()
        proxy.let_answers_through()
        await _send(producer, range(400, 600), sent)
        topic.start_sealing()
        topic.commit(ends)
        await _send(producer, range(600, 700), sent)
        await producer.flush(40)

        assert topic.by_key() == sent

    run(proxied, topic_prefix, body)


def test_a_stranger_with_the_same_messages_is_not_mistaken_for_the_producer(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, producer: Producer) -> None:
        await producer.send(b"first", "key")
        async with Client(topic.url) as other_client:
            other = await other_client.create_producer(topic.name)
            proxy.refuse(True)
            proxy.cut()
            await producer.post(b"same", "key", event_time_ms=1)  # goes nowhere yet
            stranger = topic.plain_producer()
            part, bucket = producer.layout.place("key")
            stranger.produce(part.kafka_topic, b"same", b"key", bucket, timestamp=1)
            assert stranger.flush(40) == 0
            topic.begin((part.segment_id,), topic.layout.split_children(part.segment_id))
            await topic.make(topic.children)
            ends = await topic.seal()
            proxy.refuse(False)
            topic.start_sealing()
            topic.commit(ends)
            await producer.flush(40)
            await other.close()

        assert topic.by_key()[b"key"] == [b"first", b"same", b"same"]

    run(proxied, topic_prefix, body)


@pytest.mark.parametrize("round_number", range(3))
def test_the_seal_of_one_segment_repeats_nothing_in_another_when_the_connection_is_cut(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str, round_number: int
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, producer: Producer) -> None:
        sent: dict[bytes, list[bytes]] = {}
        await _send(producer, range(100), sent)
        proxy.hold_answers()
        for start in range(100, 700, 100):
            await _send(producer, range(start, start + 100), sent)
            await asyncio.sleep(0.005)
        children = topic.layout.split_children(0)
        topic.begin((0,), children)
        await topic.make(children)
        ends = await topic.seal()
        proxy.cut()
        proxy.let_answers_through()
        for start in range(700, 1_000, 100):
            await _send(producer, range(start, start + 100), sent)
            await asyncio.sleep(0.005)
        topic.start_sealing()
        topic.commit(ends)
        await _send(producer, range(1_000, 1_100), sent)
        await producer.flush(40)

        assert topic.by_key() == sent

    run(proxied, topic_prefix, body)


class Told:
    """Sends, and keeps what was told of each value."""

    def __init__(self, producer: Producer) -> None:
        self.delivered: dict[bytes, list[bytes]] = {}
        self.failed: dict[bytes, Exception] = {}
        self._producer = producer

    async def send(self, numbers: range) -> None:
        for number in numbers:
            key, value = b"key-%d" % (number % 40), b"%d" % number
            await self._producer.post(value, key, on_delivery=self._told_of(key, value))

    def _told_of(
        self, key: bytes, value: bytes
    ) -> Callable[[DeliveryResult | None, Exception | None], None]:
        def told(_result: DeliveryResult | None, error: Exception | None) -> None:
            if error is None:
                self.delivered.setdefault(key, []).append(value)
            else:
                self.failed[value] = error

        return told


def test_what_was_given_up_before_is_not_counted_for_what_is_in_doubt_at_the_seal(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, producer: Producer) -> None:
        told = Told(producer)
        await told.send(range(200))
        await producer.flush(40)
        proxy.hold_answers()
        await told.send(range(200, 240))
        await until(lambda: _stored(topic) > 200)  # some arrived, and nobody is told
        await until(lambda: len(told.failed) == 40)
        proxy.cut()
        proxy.let_answers_through()
        await told.send(range(240, 400))
        await producer.flush(40)
        proxy.hold_answers()
        before = _stored(topic)
        await told.send(range(400, 440))
        await until(lambda: _stored(topic) > before)
        topic.begin((0,), topic.layout.split_children(0))
        await topic.make(topic.children)
        ends = await topic.seal()
        proxy.cut()
        proxy.let_answers_through()
        topic.start_sealing()
        topic.commit(ends)
        await told.send(range(440, 600))
        await producer.flush(40)

        stored = topic.by_key()
        unknown = {value for value, error in told.failed.items()}
        assert all(isinstance(error, UnknownOutcomeError) for error in told.failed.values())
        assert sum(map(len, stored.values())) == len({v for each in stored.values() for v in each})
        kept = {k: [v for v in values if v not in unknown] for k, values in stored.items()}
        assert kept == told.delivered
        assert unknown <= {b"%d" % number for number in (*range(200, 240), *range(400, 440))}

    run(proxied, topic_prefix, body, delivery_timeout_s=10.0)


def test_a_producer_goes_on_after_kafka_was_away_for_longer_than_messages_may_take(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, producer: Producer) -> None:
        told = Told(producer)
        await told.send(range(100))
        await producer.flush(40)
        proxy.refuse(True)
        proxy.cut()
        await told.send(range(100, 200))
        await producer.flush(40)
        assert len(told.failed) == 100
        assert all("segment " in str(error) for error in told.failed.values())
        assert any(
            "refused" in str(error).lower()
            or "disconnected" in str(error).lower()
            or "down" in str(error).lower()
            for error in told.failed.values()
        )
        proxy.refuse(False)
        await told.send(range(200, 300))
        await producer.flush(40)
        stored = topic.by_key()
        kept = {k: [v for v in values if v not in told.failed] for k, values in stored.items()}
        assert kept == told.delivered
        assert sum(map(len, kept.values())) == 200

    run(proxied, topic_prefix, body, delivery_timeout_s=10.0)


_LEFT = """
import asyncio, os, signal, sys
from anabranch.client import Client, sync

how, url, topic = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it began ignored

async def main():
    async with Client(url) as client:
        producer = await client.create_producer(topic)
        await producer.send(b"there", "key")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(100):
            await producer.post(b"%d" % number, "key")
        if how == "raises":
            raise RuntimeError("of the application")
        if how == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

def script():
    with sync.connect(url) as client:
        producer = client.create_producer(topic)
        producer.send(b"there", "key")
        print("ready", flush=True)
        sys.stdin.readline()
        producer.send_many([("key", b"lost")] * 100)
        raise RuntimeError("of the application")

script() if how == "script" else asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raises", "RuntimeError: of the application"),
        ("interrupted", "KeyboardInterrupt"),
        ("script", "RuntimeError: of the application"),
    ],
)
def test_a_process_ends_after_an_error_while_kafka_is_out_of_reach(
    proxied: tuple[EmbeddedKafka, TcpProxy], topic_prefix: str, how: str, says: str
) -> None:
    _, proxy = proxied

    async def body(topic: HandMadeTopic, _producer: Producer) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _LEFT,
            how,
            topic.url,
            topic.name,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), START_S_MAX)) == b"ready\n"
        proxy.refuse(True)
        proxy.cut()
        try:
            _, stderr = await asyncio.wait_for(process.communicate(b"go\n"), STOP_S_MAX)
        finally:
            proxy.refuse(False)
            if process.returncode is None:
                process.kill()
        assert process.returncode != 0
        assert says in stderr.decode().splitlines()[-1]

    run(proxied, topic_prefix, body)


def test_what_kafka_stored_and_then_refused_for_want_of_replicas_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, topic_prefix: str
) -> None:
    """Its answer is lost; tried again, it and the next one are refused, and those behind are not:
    so it goes while replicas come back. Kafka finds a gap then, and librdkafka began a new epoch.
    """
    refused: Counter[int] = Counter()  # by its number
    lost: list[Append] = []
    overtaken: list[Append] = []
    all_posted = threading.Event()

    def decide(append: Append) -> Deed:
        if not lost and append.sequence == _ALONE:
            assert all_posted.wait(START_S_MAX)
            lost.append(append)
            return Deed.LOSE_ANSWER
        if append.sequence > _ALONE + 1:
            overtaken.append(append)
        if not lost or overtaken or refused[_ALONE] == _REFUSED_MAX:
            return Deed.PASS
        refused[append.sequence] += 1
        return Deed.REFUSE

    async def body(topic: HandMadeTopic, proxy: ProduceProxy) -> None:
        topic.max_message_bytes = 4_000  # so each of these messages is a batch
        values = [random.Random(number).randbytes(3_000) for number in range(_ALONE + 6)]
        async with Client(topic.url) as client:
            producer = await client.create_producer(topic.name, linger_ms=0)
            for value in values[:_ALONE]:
                await producer.send(value, "key")
            proxy.decide, proxy.topic = decide, topic.kafka_topic(topic.layout.active[0])
            for value in values[_ALONE:]:
                await producer.post(value, "key")
            all_posted.set()
            await producer.flush(60)

        assert refused
        assert [values.index(each) for each in topic.by_key()[b"key"]] == [*range(len(values))]

    async def test(kafka: EmbeddedKafka, proxy: ProduceProxy) -> None:
        advertised = f"{_HOST}:{proxy.port}"
        bootstrap = kafka.bootstrap_servers
        async with HandMadeTopic(
            topic_prefix, bootstrap, advertised=advertised, buckets=1
        ) as topic:
            await body(topic, proxy)

    listens = ports.free_port(_HOST)
    folder = tmp_path_factory.mktemp("refusing")
    with (
        ProduceProxy(listens) as proxy,
        EmbeddedKafka(folder, second_listener=(listens, proxy.port)) as kafka,
    ):
        asyncio.run(test(kafka, proxy))
