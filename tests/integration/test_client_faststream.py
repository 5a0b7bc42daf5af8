"""Applications of FastStream on a real Kafka, and that of `docs/client.md` as users run it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faststream.exceptions import NackMessage, RejectMessage, StopConsume
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from anabranch.client import (
    Backoff,
    Client,
    DeadLetter,
    DeadLetterPolicy,
    DeadLetterReason,
    HandlerError,
    Retry,
    TopicNotFoundError,
)
from anabranch.client.faststream import AnabranchBroker, AnabranchMessage, TestAnabranchBroker
from anabranch.client.otel import AnabranchInstrumentor
from anabranch.core.entities.subscription import dead_letter_topic
from anabranch.core.errors import InvalidInputError
from support.there import there
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until

_PAGE = Path(__file__).parents[2] / "docs" / "client.md"
_CUSTOMERS = [f"customer-{number}" for number in range(8)]
_SOON = Backoff(first=0.01, most=0.01)


def _written(folder: Path, cluster: TopicCluster, orders: str, invoices: str) -> None:
    """The application of the page, with the names of this test."""
    (shown,) = re.findall(r"```python\n# app\.py\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    for name, own in (
        ("pulsar://node-1:6650", cluster.url),
        ("topic://public/default/orders", orders),
        ("topic://public/default/invoices", invoices),
    ):
        assert name in shown
        shown = shown.replace(name, own)
    (folder / "app.py").write_text(shown)


@asynccontextmanager
async def _running(folder: Path, *options: str) -> AsyncIterator[Process]:
    """The application, as `faststream run` runs it."""
    program = (sys.executable, "-m", "faststream", "run", "app:app", *options)
    process = await asyncio.create_subprocess_exec(*program, cwd=folder, stdout=PIPE, stderr=STDOUT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ended(process: Process) -> str:
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    return output.decode()


async def test_the_application_of_the_page_bills_each_order_once_and_puts_bad_ones_aside(
    cluster: TopicCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    await cluster.create(invoices := f"{topic}-invoices")
    _written(tmp_path, cluster, f"topic://{topic}", f"topic://{invoices}")
    got: dict[str, list[int]] = defaultdict(list)
    seen = await client.subscribe(invoices, "look")
    bad = [(b'{"customer": "eve", "cents": -1}', "would get money"), (b'{"cents": 1}', "customer")]

    async def look(count: int) -> None:
        while sum(map(len, got.values())) < count:
            message = await seen.receive(WAIT_S)
            invoice = json.loads(message.value)
            assert message.key.decode() == invoice["customer"]
            assert dict(message.headers)["content-type"] == b"application/json"
            assert dict(message.headers)["correlation_id"]
            got[invoice["customer"]].append(invoice["total"])

    async with await client.create_producer(topic) as producer:
        for round_ in range(2):
            async with _running(tmp_path, *(("--workers", "2") * round_)) as process:
                for cents in range(20 * round_, 20 * round_ + 20):
                    for customer in _CUSTOMERS:
                        order = json.dumps({"customer": customer, "cents": cents})
                        await producer.post(order, customer)
                    if round_ == 0 and cents < len(bad):
                        await producer.post(bad[cents][0], _CUSTOMERS[0])
                await producer.flush()
                await look(160 * (round_ + 1))
                if round_ == 0:
                    aside = dead_letter_topic(topic, "billing")
                    async with await client.subscribe(aside, "look") as letters:
                        found = [await letters.receive(WAIT_S) for _ in bad]
                process.send_signal(signal.SIGTERM)
                said = await _ended(process)
                assert process.returncode == 0, said
    for letter, (value, why) in zip(found, bad, strict=True):
        told = there(DeadLetter.of(letter))
        assert (letter.value, told.reason) == (value, DeadLetterReason.ATTEMPTS)
        assert why in told.error
        assert letter.key == _CUSTOMERS[0].encode()
    assert got == {customer: list(range(40)) for customer in _CUSTOMERS}


async def test_a_consumer_that_fails_ends_the_application_with_its_error(
    cluster: TopicCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    await cluster.create(invoices := f"{topic}-invoices")
    _written(tmp_path, cluster, f"topic://{topic}", f"topic://{invoices}")
    app = tmp_path / "app.py"
    app.write_text(
        app.read_text().replace('attempts_max=3, then="dead_letter"', 'attempts_max=1, then="stop"')
    )
    async with _running(tmp_path) as process:
        async with await client.create_producer(topic) as producer:
            await producer.send(b'{"customer": "eve", "cents": -1}', "eve")
        said = await _ended(process)
    assert process.returncode == 1
    assert "eve would get money" in said
    assert "HandlerError" in said


async def test_the_page_s_application_has_a_document(
    cluster: TopicCluster, topic: str, tmp_path: Path
) -> None:
    _written(tmp_path, cluster, f"topic://{topic}", f"topic://{topic}-invoices")
    program = (sys.executable, "-m", "faststream", "docs", "gen", "app:app", "--out", "told.json")
    process = await asyncio.create_subprocess_exec(
        *program, cwd=tmp_path, stdout=PIPE, stderr=STDOUT
    )
    said = await _ended(process)
    told = json.loads((tmp_path / "told.json").read_text())
    assert {each["address"] for each in told["channels"].values()} == {
        f"topic://{topic}",
        f"topic://{topic}-invoices",
    }, said
    assert {"Order", "Invoice"} <= told["components"]["schemas"].keys()


def _broker(cluster: TopicCluster, **options: Any) -> AnabranchBroker:
    return AnabranchBroker(cluster.url, logger=None, **options)


async def test_keys_are_side_by_side_as_far_as_allowed_and_each_in_order(
    cluster: TopicCluster, topic: str
) -> None:
    broker = _broker(cluster)
    running: list[bytes] = []
    widths: list[int] = []
    done: dict[bytes, list[int]] = defaultdict(list)

    @broker.subscriber(topic, subscription="billing", concurrency=2)
    async def handle(number: int, message: AnabranchMessage) -> None:
        running.append(message.key)
        widths.append(len(running))
        beside.extend(each for each in set(running) if running.count(each) > 1)
        await until(lambda: 2 in widths)
        await asyncio.sleep(0)
        running.remove(message.key)
        done[message.key].append(number)

    beside: list[bytes] = []
    keys = (b"a", b"b", b"c")
    async with broker:
        for number in range(5):
            await asyncio.gather(*(broker.publish(number, topic, key=key) for key in keys))
        await broker.start()
        await until(lambda: sum(map(len, done.values())) == 15)
    assert done == {key: list(range(5)) for key in keys}
    assert (max(widths), beside) == (2, [])


async def test_a_broker_makes_one_producer_for_each_topic_however_many_publish_at_once(
    cluster: TopicCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    sound = Client.create_producer

    async def noting(client: Client, topic: str, *args: Any, **options: Any) -> Any:
        made.append(topic)
        return await sound(client, topic, *args, **options)

    monkeypatch.setattr(Client, "create_producer", noting)
    broker = _broker(cluster)
    publisher = broker.publisher(topic)
    async with broker:
        await asyncio.gather(*(broker.publish(n, f"topic://{topic}") for n in range(50)))
        results = await asyncio.gather(*(publisher.publish(n, key="k") for n in range(50)))
    assert made == [topic]
    offsets = [each.offset for each in results]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == 50


async def test_a_stop_waits_for_what_runs_and_a_later_start_repeats_only_what_it_cancelled(
    cluster: TopicCluster, topic: str
) -> None:
    broker = _broker(cluster, graceful_timeout=WAIT_S)
    began, done = [], []
    free = asyncio.Event()

    @broker.subscriber(topic, subscription="billing")
    async def bill(order: int) -> None:
        began.append(order)
        await free.wait()
        done.append(order)

    for number in range(2):
        await broker.start()
        assert await broker.ping()
        await broker.publish(number, topic, key="k")
        await until(lambda: number in began)  # noqa: B023 - it ends here
        stopping = asyncio.create_task(broker.stop())
        if number == 0:
            await until(lambda: not broker.subscribers[0].running)
            assert not done
            free.set()
        await stopping
        assert not await broker.ping()
        free.clear()
        broker.config.broker_config.graceful_timeout = None
    assert (began, done) == ([0, 1], [0])
    free.set()
    await broker.start()
    await until(lambda: done == [0, 1])
    await broker.stop()
    assert began == [0, 1, 1]


async def test_words_of_faststream_do_on_kafka_what_the_page_says(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    broker = _broker(cluster)
    handled: list[tuple[str, int]] = []

    @broker.subscriber(
        topic,
        subscription="billing",
        retry=Retry(attempts_max=2, delay_s=_SOON, then="dead_letter"),
        dead_letter=DeadLetterPolicy(),
    )
    async def handle(body: str, message: AnabranchMessage) -> None:
        handled.append((body, message.work.attempt))
        if body == "reject":
            raise RejectMessage
        if body == "nack" and len([each for each, _ in handled if each == body]) < 4:
            raise NackMessage(delay_s=0.01)
        if body == "fail":
            raise ConnectionError("the database is away")

    async with broker:
        await broker.start()
        for body in ("reject", "nack", "fail", "fine"):
            result = await broker.publish(body, topic, key="k")
            assert result.offset >= 0
        await until(lambda: ("fine", 1) in handled)
    counts = {body: [each for each, _ in handled].count(body) for body, _ in handled}
    assert counts == {"reject": 1, "nack": 4, "fail": 2, "fine": 1}
    assert [body for body, _ in handled] == ["reject", *["nack"] * 4, "fail", "fail", "fine"]
    aside = dead_letter_topic(topic, "billing")
    async with await client.subscribe(aside, "look") as letters:
        found = [await letters.receive(WAIT_S) for _ in range(2)]
    reasons = [there(DeadLetter.of(each)).reason for each in found]
    assert [each.value for each in found] == [b"reject", b"fail"]
    assert reasons == [DeadLetterReason.REJECTED, DeadLetterReason.ATTEMPTS]


async def test_a_queue_s_jobs_are_worked_on_and_a_handler_may_stop_its_subscriber(
    cluster: TopicCluster, topic: str
) -> None:
    broker = _broker(cluster)
    got: list[tuple[int, int]] = []

    @broker.subscriber(topic, subscription="jobs", queue=True, delay_s=_SOON)
    async def work(job: int, message: AnabranchMessage) -> None:
        got.append((job, message.work.attempt))
        if job == 1 and message.work.attempt == 1:
            raise ConnectionError("the database is away")
        if job == 2:
            raise StopConsume

    async with broker:
        await broker.start()
        (subscriber,) = broker.subscribers
        await broker.publish(1, topic)
        await until(lambda: (1, 2) in got)
        assert subscriber.running
        await broker.publish(2, topic)
        await until(lambda: not subscriber.running)
    assert got == [(1, 1), (1, 2), (2, 1)]


async def test_what_cannot_start_says_why_and_leaves_nothing_behind(
    cluster: TopicCluster, topic: str
) -> None:
    missing = _broker(cluster)
    for name in (topic, f"{topic}-missing"):
        missing.subscriber(name, subscription="billing")(lambda _: None)
    with pytest.raises(TopicNotFoundError):
        await missing.start()
    assert not await missing.ping()
    unsaid = _broker(cluster)
    unsaid.subscriber(topic, subscription="other", retry=Retry(then="dead_letter"))(print)
    with pytest.raises(InvalidInputError, match="has no dead letters"):
        await unsaid.start()
    away = AnabranchBroker("pulsar://127.0.0.1:1", logger=None)
    async with away:
        assert not await away.ping(0.5)


async def test_a_failed_consumer_is_told_by_ping_and_by_stop(
    cluster: TopicCluster, topic: str
) -> None:
    broker = _broker(cluster)

    @broker.subscriber(topic, subscription="billing", retry=Retry(attempts_max=1, then="stop"))
    async def bill(_order: str) -> None:
        raise ConnectionError("the database is away")

    await broker.start()
    await broker.publish("one", topic)
    (subscriber,) = broker.subscribers
    await until(lambda: not subscriber.running)
    assert not await broker.ping()
    with pytest.raises(ExceptionGroup) as told:
        await broker.stop()
    (error,) = told.value.exceptions
    assert isinstance(error, HandlerError)
    assert not await broker.ping()


async def test_the_test_broker_with_the_real_kafka_and_spans_of_what_it_does(
    cluster: TopicCluster, topic: str
) -> None:
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    AnabranchInstrumentor().instrument(tracer_provider=tracers)
    broker = _broker(cluster)

    @broker.subscriber(topic, subscription="billing")
    async def bill(order: str) -> str:
        return order

    try:
        async with TestAnabranchBroker(broker, with_real=True):
            await broker.publish("one", topic, key="k")
            await bill.wait_call(WAIT_S)
            bill.mock.assert_called_once_with("one")
    finally:
        AnabranchInstrumentor().uninstrument()
    kinds = {each.name.partition(" ")[0] for each in spans.get_finished_spans()}
    assert kinds == {"send", "process"}
