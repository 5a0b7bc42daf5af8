"""The SDK and administration through proxies alone, on a real Kafka, with nodes that fail."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest

from anabranch.client import Client, Producer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.proxy_process import ProxyProcess, proxy_process
from support.topic_cluster import MISSED_SOON, TEST_S, TopicCluster, topic_cluster
from support.traffic import Traffic, stored, wrong
from support.waiting import eventually, until

TOPIC = "public/default/behind"
_KEYS = [b"key-%d" % number for number in range(50)]
_connected: set[int] = set()  # ports that this process has connected to, while they are noted
_notes = False


def _audit(event: str, arguments: Any) -> None:
    # The proxies in front of the shared Kafka connect by threads of their own.
    if _notes and event == "socket.connect" and _is_ours():
        address = arguments[1]
        if isinstance(address, tuple):
            _connected.add(int(address[1]))


def _is_ours() -> bool:
    return threading.current_thread() is threading.main_thread()


sys.addaudithook(_audit)


@contextmanager
def connections_noted() -> Iterator[set[int]]:
    global _notes
    _connected.clear()
    _notes = True
    try:
        yield _connected
    finally:
        _notes = False


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("proxied")
    with topic_cluster(kafka, f"{folder.name}.", folder, *MISSED_SOON) as running:
        yield running


@pytest.fixture(scope="module")
def proxies(
    cluster: TopicCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ProxyProcess]]:
    folder = tmp_path_factory.mktemp("proxies")
    nodes = [node.broker_id for node in cluster.nodes]
    with (
        proxy_process("one", nodes[:1], folder) as one,  # it finds the other node by itself
        proxy_process("two", nodes, folder) as two,
    ):
        yield [one, two]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def url_of(proxies: list[ProxyProcess]) -> str:
    return "pulsar://" + ",".join(p.service_url.removeprefix("pulsar://") for p in proxies)


async def rest(proxy: ProxyProcess, method: str, path: str, **options: Any) -> Any:
    async with httpx.AsyncClient(base_url=proxy.web_url, timeout=60) as http:
        answer = await http.request(method, path, **options)
    assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
    is_json = "json" in answer.headers.get("content-type", "") and answer.content
    return answer.json() if is_json else answer.text


async def controller_of(proxy: ProxyProcess, topic: str) -> str:
    """The id of the broker that owns the topic's bundle."""
    home = topic.rpartition("/")[0]
    part = await rest(proxy, "GET", f"/lookup/v2/topic/topic/{topic}/bundle")
    for broker in await rest(proxy, "GET", "/admin/v2/brokers/standalone"):
        path = f"/admin/v2/brokers/standalone/{broker}/ownedNamespaces"
        if f"{home}/{part}" in await rest(proxy, "GET", path):
            return str(broker)
    return ""


class Flow:
    """Messages of a producer, and what a consumer was given of them."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.received: dict[bytes, list[bytes]] = defaultdict(list)

    @property
    def count(self) -> int:
        return sum(map(len, self.received.values()))

    async def goes_on(self) -> None:
        seen = self.count
        await until(lambda: self.count > seen + 200)


@asynccontextmanager
async def flowing(proxies: list[ProxyProcess], topic: str, kafka: str) -> AsyncIterator[Flow]:
    """While it lasts, messages are sent and received through the proxies; in the end all are there,
    once and in the order of their keys.
    """
    async with Client(url_of(proxies)) as client:
        flow = Flow(await client.create_producer(topic))
        consumer = await client.subscribe(topic, "billing", "only")

        async def receive() -> None:
            async for message in consumer:
                flow.received[message.key or b""].append(bytes(message.value))
                consumer.acknowledge(message)

        receiving = asyncio.create_task(receive())
        traffic = Traffic(flow.producer, _KEYS, 0.01)
        await flow.goes_on()
        yield flow
        sent = await traffic.stop()
        received = flow.received
        await until(lambda: all(set(received[key]) == set(values) for key, values in sent.items()))
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        kept = await asyncio.to_thread(stored, kafka, flow.producer.layout)
    assert wrong(kept, sent) == []
    assert wrong({key: list(dict.fromkeys(values)) for key, values in received.items()}, sent) == []


async def test_nothing_is_lost_and_keys_keep_their_order_when_a_session_s_node_is_killed(
    cluster: TopicCluster, proxies: list[ProxyProcess]
) -> None:
    with connections_noted() as ports:
        await rest(
            proxies[0], "PUT", f"/admin/v2/scalable/{TOPIC}", params={"numInitialSegments": 2}
        )
        await rest(proxies[1], "GET", f"/lookup/v2/topic/topic/{TOPIC}")
        async with flowing(proxies, TOPIC, cluster.kafka) as flow:
            victim = await controller_of(proxies[0], TOPIC)
            next(each for each in cluster.nodes if each.broker_id == victim).kill()
            before = flow.count

            async def split() -> bool:
                """A proxy asks again what only reads; a split that was answered by none may be
                done, so that its layout says."""
                with contextlib.suppress(AssertionError):
                    await rest(proxies[1], "POST", f"/admin/v2/scalable/{TOPIC}/split/0")
                layout = await rest(proxies[1], "GET", f"/admin/v2/scalable/{TOPIC}")
                return len(layout["segments"]) == 4

            await eventually(split)
            await until(lambda: len(flow.producer.layout.segments) == 4)
            await until(lambda: flow.count > before + 200)
    allowed = {port_of(url) for each in proxies for url in (each.web_url, each.service_url)}
    allowed |= {port_of(each) for each in cluster.kafka.split(",")}
    assert ports <= allowed, f"connected to {ports - allowed}, which are no proxy's nor Kafka's"
    assert ports & {port_of(each.service_url) for each in proxies}


def test_a_proxy_that_is_stopped_sends_its_clients_to_another_and_ends_cleanly(
    cluster: TopicCluster, proxies: list[ProxyProcess]
) -> None:
    async def body() -> None:
        topic = "public/default/left"
        await cluster.create(topic)
        async with Client(url_of(proxies)) as client:
            producer = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "other", "only")
            await producer.send(b"before", "k")
            assert await asyncio.to_thread(proxies[0].stop) == 0, proxies[0].text()
            await producer.send(b"after", "k")
            found: list[bytes] = []
            async for message in consumer:
                found.append(bytes(message.value))
                consumer.acknowledge(message)
                if found[-1] == b"after":
                    break
            assert found.index(b"before") < found.index(b"after")

    asyncio.run(asyncio.wait_for(body(), TEST_S))
    assert "Traceback" not in proxies[0].text()
