"""Appends whose outcome the producer cannot know, because its connection was cut, then the seal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator

import pytest

from anabranch.client import Client, DeliveryResult, Producer
from support.hand_made_topic import HandMadeTopic
from support.opening import Opening
from support.processes import START_S_MAX, STOP_S_MAX
from support.tcp_proxy import ProxiedKafka
from support.traffic import post
from support.waiting import WAIT_S, until


@pytest.fixture
def made(proxied: ProxiedKafka, topic_prefix: str, buckets: int) -> Iterator[Opening]:
    """A topic whose clients reach Kafka by its proxies."""
    bootstrap, at = proxied.kafka.bootstrap_servers, proxied.advertised
    yield Opening(
        lambda: HandMadeTopic(topic_prefix, bootstrap, advertised=at, segments=2, buckets=buckets)
    )
    proxied.proxy.refuse(False)
    proxied.proxy.let_answers_through()


async def test_what_arrived_before_the_cut_is_not_sent_again_to_the_child(
    made: HandMadeTopic, proxied: ProxiedKafka
) -> None:
    producer = await made.client.create_producer(made.name, linger_ms=0)
    sent: dict[bytes, list[bytes]] = {}
    await post(producer, range(200), sent)
    await producer.flush(WAIT_S)
    proxied.proxy.hold_answers()
    await post(producer, range(200, 400), sent)
    await until(lambda: made.stored() > 200)  # some arrived, and nobody has been told
    ends = await made.split_unanswered(proxied.proxy)
    await post(producer, range(400, 600), sent)
    made.start_sealing()
    made.commit(ends)
    await post(producer, range(600, 700), sent)
    await producer.flush(WAIT_S)

    assert made.by_key() == sent


async def test_a_stranger_with_the_same_messages_is_not_mistaken_for_the_producer(
    made: HandMadeTopic, proxied: ProxiedKafka
) -> None:
    producer = await made.client.create_producer(made.name, linger_ms=0)
    await producer.send(b"first", "key")
    async with Client(made.url) as other_client:
        other = await other_client.create_producer(made.name)
        proxied.proxy.refuse(True)
        proxied.proxy.cut()
        await producer.post(b"same", "key", event_time_ms=1)  # goes nowhere yet
        stranger = made.plain_producer()
        part, bucket = producer.layout.place("key")
        stranger.produce(part.kafka_topic, b"same", b"key", bucket, timestamp=1)
        assert stranger.flush(WAIT_S) == 0
        made.begin((part.segment_id,), made.layout.split_children(part.segment_id))
        await made.make(made.children)
        ends = await made.seal()
        proxied.proxy.refuse(False)
        made.start_sealing()
        made.commit(ends)
        await producer.flush(WAIT_S)
        await other.close()

    assert made.by_key()[b"key"] == [b"first", b"same", b"same"]


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


@pytest.mark.long
async def test_a_producer_goes_on_after_kafka_was_away_for_longer_than_messages_may_take(
    made: HandMadeTopic, proxied: ProxiedKafka
) -> None:
    producer = await made.client.create_producer(made.name, linger_ms=0, delivery_timeout_s=10.0)
    told = Told(producer)
    await told.send(range(100))
    await producer.flush(WAIT_S)
    proxied.proxy.refuse(True)
    proxied.proxy.cut()
    await told.send(range(100, 200))
    await producer.flush(WAIT_S)
    assert len(told.failed) == 100
    assert all("segment " in str(error) for error in told.failed.values())
    assert all("the last trouble with Kafka: " in str(error) for error in told.failed.values())
    proxied.proxy.refuse(False)
    await told.send(range(200, 300))
    await producer.flush(WAIT_S)
    kept = {k: [v for v in values if v not in told.failed] for k, values in made.by_key().items()}
    assert kept == told.delivered
    assert sum(map(len, kept.values())) == 200


_LEFT = """
import asyncio, os, signal, sys
from anabranch.client import Client

url, topic = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it began ignored

async def main():
    async with Client(url) as client:
        producer = await client.create_producer(topic)
        await producer.send(b"there", "key")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(100):
            await producer.post(b"%d" % number, "key")
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_process_ends_when_interrupted_while_kafka_is_out_of_reach(
    made: HandMadeTopic, proxied: ProxiedKafka
) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LEFT, made.url, made.name, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), START_S_MAX)) == b"ready\n"
    proxied.proxy.refuse(True)
    proxied.proxy.cut()
    try:
        _, stderr = await asyncio.wait_for(process.communicate(b"go\n"), STOP_S_MAX)
    finally:
        proxied.proxy.refuse(False)
        if process.returncode is None:
            process.kill()
    assert process.returncode != 0
    assert stderr.decode().splitlines()[-1] == "KeyboardInterrupt"
