"""Spans and metrics of the SDK, as an application's own exporter gets them, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from anabranch.client import Backoff, BatchFailed, Client, Message, Retry, Work, sync
from anabranch.client.otel import AnabranchInstrumentor, context_of
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

_SOON = Retry(delay_s=Backoff(first=0.01, most=0.01))


class Told:
    """What was exported."""

    def __init__(self) -> None:
        self._spans, self._numbers = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._numbers])

    def spans(self, operation: str) -> list[ReadableSpan]:
        every = self._spans.get_finished_spans()
        return [each for each in every if _of(each, "messaging.operation.name") == operation]

    def number(self, name: str, **about: str) -> float:
        """The sum of a counter, or the count of a histogram, where the attributes are these."""
        data: Any = self._numbers.get_metrics_data()
        return float(
            sum(
                getattr(point, "value", None) or point.count
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                if metric.name == name
                for point in metric.data.data_points
                if {f"messaging.{key}": value for key, value in about.items()}.items()
                <= dict(point.attributes).items()
            )
        )


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    (named,) = entry_points(group="opentelemetry_instrumentor", name="anabranch")
    instrumentor = named.load()()  # as `opentelemetry-instrument` finds it
    instrumentor.instrument(tracer_provider=told.tracers, meter_provider=told.meters)
    yield told
    instrumentor.uninstrument()
    told.meters.shutdown()


def _of(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


def _ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def _linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(each.context.trace_id, each.context.span_id) for each in span.links]


async def test_a_handlers_span_follows_the_producers_and_its_failure_is_told(
    told: Told, client: Client, topic: str
) -> None:
    async def handle(message: Message, work: Work) -> None:
        if work.attempt == 1:
            raise ConnectionError("the database is away")
        with told.tracers.get_tracer("application").start_as_current_span("insert"):
            await consumer.stop()

    async with await client.create_producer(topic) as producer:
        with told.tracers.get_tracer("application").start_as_current_span("order") as order:
            result = await producer.send(b"v", b"k", headers=[("a", b"1"), ("traceparent", b"old")])
    consumer = await client.subscribe(topic, "billing")
    await asyncio.wait_for(consumer.run(handle, retry=_SOON), WAIT_S)

    (sent,) = told.spans("send")
    name = topic.removeprefix("topic://")
    assert (sent.name, sent.kind) == (f"send {name}", SpanKind.PRODUCER)
    assert sent.parent is not None
    assert sent.parent.span_id == order.get_span_context().span_id
    failed, done = told.spans("process")
    place = f"{result.segment_id}/{result.bucket}"
    for each in (failed, done):
        assert (each.name, each.kind) == (f"process {name}", SpanKind.CONSUMER)
        assert each.parent is not None
        assert each.parent.span_id == _ids(sent)[1]
        assert _linked(each) == [_ids(sent)]
        assert _of(each, "messaging.consumer.group.name") == "billing"
        assert _of(each, "messaging.destination.partition.id") == place
        assert _of(each, "messaging.kafka.offset") == result.offset
        assert _of(each, "messaging.message.id").endswith(f"/{place}@{result.offset}")
    assert [_of(each, "anabranch.attempt") for each in (failed, done)] == [1, 2]
    assert failed.status.status_code is StatusCode.ERROR
    assert _of(failed, "error.type") == "ConnectionError"
    assert done.status.status_code is StatusCode.UNSET
    (inside,) = [each for each in told._spans.get_finished_spans() if each.name == "insert"]
    assert inside.parent is not None
    assert inside.parent.span_id == _ids(done)[1]
    about = {"destination.name": name}
    assert told.number("messaging.client.sent.messages", **about) == 1
    assert told.number("messaging.client.consumed.messages", **about) == 1
    assert told.number("messaging.process.duration", **about) == 2


async def test_what_is_received_is_linked_and_its_context_can_be_gone_on_with(
    told: Told, client: Client, topic: str
) -> None:
    async with await client.create_producer(topic) as producer:
        for number in range(3):
            producer.send_nowait(b"%d" % number, b"k")
        await producer.flush()
    created = [_ids(each) for each in told.spans("create")]
    async with await client.subscribe(topic, "billing") as consumer:
        first = await consumer.receive(WAIT_S)
        rest = await consumer.receive_many()
    one, many = told.spans("receive")
    assert (one.kind, _linked(one)) == (SpanKind.CLIENT, created[:1])
    assert _linked(many) == created[1 : 1 + len(rest)]
    assert _of(many, "messaging.batch.message_count") in (len(rest), None)
    known = trace.get_current_span(context_of(first)).get_span_context()
    assert (known.trace_id, known.span_id) == created[0]
    assert told.number("messaging.client.consumed.messages") == 1 + len(rest)


async def test_a_batch_and_a_queues_job_have_spans_with_links_to_all_of_theirs(
    told: Told, client: Client, topic: str
) -> None:
    done = 0

    async def insert(pairs: list[tuple[Message, Work]]) -> None:
        nonlocal done
        if done == 0 and len(pairs) == 1:
            raise BatchFailed({pairs[0][0]: ValueError("no")})
        done += len(pairs)
        if done == 4:
            await consumer.stop()

    async def work(_message: Message, _work: Work) -> None:
        await queue.stop()

    async with await client.create_producer(topic) as producer:
        for number in range(4):
            await producer.send(b"%d" % number, b"k")
    sent = [_ids(each) for each in told.spans("send")]
    consumer = await client.subscribe(topic, "billing")
    await asyncio.wait_for(consumer.run_batches(insert, wait_s=0.1, retry=_SOON), WAIT_S)
    batches = [
        each for each in told.spans("process") if each.status.status_code is not StatusCode.ERROR
    ]
    assert [link for each in batches for link in _linked(each)] == sent
    queue = await client.subscribe_queue(topic, "jobs")
    await asyncio.wait_for(queue.run(work, concurrency=1), WAIT_S)
    (job,) = [e for e in told.spans("process") if _of(e, "messaging.consumer.group.name") == "jobs"]
    assert _linked(job) == sent[:1] or _linked(job)[0] in sent


async def test_plain_handlers_and_the_synchronous_face_are_measured_as_well(
    told: Told, cluster: TopicCluster, topic: str
) -> None:
    def script() -> None:
        def handle(_message: Message, _work: Work) -> None:
            with tracer.start_as_current_span("insert"):
                consumer.stop()

        tracer = told.tracers.get_tracer("application")
        with sync.Client(cluster.url) as client:
            with client.create_producer(topic) as producer, tracer.start_as_current_span("order"):
                producer.send(b"v", b"k")
            consumer = client.subscribe(topic, "billing")
            consumer.run(handle)
            with client.subscribe(topic, "other") as other:
                assert len(other.receive_many(timeout_s=WAIT_S)) == 1

    await asyncio.to_thread(script)
    trace_ids = {_ids(each)[0] for each in (*told.spans("send"), *told.spans("process"))}
    inside = {each.name: each for each in told._spans.get_finished_spans()}["insert"]
    assert {_ids(inside)[0]} == trace_ids
    assert len(told.spans("receive")) == 1


async def test_a_refused_message_ends_its_span_and_nothing_is_measured_afterwards(
    told: Told, client: Client, topic: str
) -> None:
    async with await client.create_producer(topic) as producer:
        with pytest.raises(Exception, match="header"):
            await producer.send(b"v", headers=[("a", 1)])
        (refused,) = told.spans("send")
        assert _of(refused, "error.type") == "InvalidInputError"
        AnabranchInstrumentor().uninstrument()
        await producer.send(b"v", b"k")
    async with await client.subscribe(topic, "billing") as consumer:
        message = await consumer.receive(WAIT_S)
    assert len(told.spans("send")) == 1
    assert not told.spans("receive")
    assert "traceparent" not in dict(message.headers)
    assert context_of(message) == context.Context()
