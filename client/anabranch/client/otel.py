"""Spans and metrics of the SDK, by OpenTelemetry's conventions for messaging (1.44, Development).

Nothing is measured until `AnabranchInstrumentor().instrument()`, or `opentelemetry-instrument` in
front of the application's command. The extra `otel` brings what it needs.

The destination is the scalable topic, never a segment's Kafka topic, of which there are ever more.
No span has a key or a value: those are the application's.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)
from opentelemetry.instrumentation.utils import unwrap
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from wrapt import wrap_function_wrapper

from anabranch.client import (
    DeliveryResult,
    Message,
    Producer,
    QueueConsumer,
    StreamTopicsConsumer,
)
from anabranch.client._consumer.ordered import OrderedConsumer
from anabranch.client._producer.messages import header_pairs
from anabranch.client._stream.retry import Again
from anabranch.client._stream.running import RunsByKey
from anabranch.client._stream.settings import is_async
from anabranch.client._stream.work import Work

__all__ = ["AnabranchInstrumentor", "context_of"]

_LINKS_MAX: Final = 128  # exporters drop more
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

_RUNS: Final = (
    (RunsByKey, "run"),
    (RunsByKey, "run_batches"),
    (QueueConsumer, "run"),
)

_Pairs = list[tuple[str, bytes | None]]
_Given = Sequence[tuple[Message, Work]]


class _Headers(Getter[_Pairs], Setter[_Pairs]):
    """Reads and writes a message's headers."""

    def get(self, carrier: _Pairs, key: str) -> list[str] | None:
        found = [data.decode(errors="replace") for name, data in carrier if name == key and data]
        return found or None

    def keys(self, carrier: _Pairs) -> list[str]:
        return [name for name, _ in carrier]

    def set(self, carrier: _Pairs, key: str, value: str) -> None:
        carrier[:] = [pair for pair in carrier if pair[0] != key]
        carrier.append((key, value.encode()))


_HEADERS: Final = _Headers()


def context_of(message: Message) -> context.Context:
    """Returns the context that the producer put into the message's headers.

    It is for applications that `receive`. The handlers of `run` have it as their span's parent.
    """
    return propagate.extract(message.headers, context.Context(), _HEADERS)


class AnabranchInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Measures producers and consumers, those of `anabranch.client.sync`, too.

    `instrument` takes `tracer_provider` and `meter_provider`; unless given, they are the global
    ones. Wrap before the calls that are to be measured; objects may exist already.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Returns nothing: it comes with the SDK that it measures."""
        return ()

    def _instrument(self, **options: Any) -> None:
        measures = _Measures(options.get("tracer_provider"), options.get("meter_provider"))
        for kind, name, wrapper in _wrappers(measures):
            wrap_function_wrapper(kind, name, wrapper)

    def _uninstrument(self, **_options: Any) -> None:
        for kind, name, _ in _wrappers(_Measures(None, None)):
            unwrap(kind, name)


def _wrappers(measures: _Measures) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    yield Producer, "send_nowait", measures.send
    for receives in (OrderedConsumer, StreamTopicsConsumer, QueueConsumer):
        yield receives, "receive", measures.receive
        yield receives, "receive_many", measures.receive
    for runs, name in _RUNS:
        yield runs, name, measures.run


class _Measures:
    """Makes the spans and counts the numbers of one instrumentation."""

    def __init__(self, tracers: Any, meters: Any) -> None:
        self._tracer = trace.get_tracer(__name__, tracer_provider=tracers)
        meter = metrics.get_meter(__name__, meter_provider=meters)
        duration = functools.partial(
            meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._operation_s = duration("messaging.client.operation.duration")
        self._process_s = duration("messaging.process.duration")
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")

    def send(
        self, wrapped: Callable[..., None], producer: Producer, args: Any, options: dict[str, Any]
    ) -> None:
        """Puts the context into the headers. The span ends with the delivery, or at once if nobody
        is told of that.
        """
        tell = options.get("on_delivery")
        name = "create" if tell is None else "send"
        about = _about(name, producer.topic.removeprefix("topic://"))
        span = self._tracer.start_span(
            _span_name(name, about), kind=SpanKind.PRODUCER, attributes=about
        )
        began = time.perf_counter()

        def ended(error: BaseException | None) -> None:
            if error is not None:
                about["error.type"] = _failed(span, error)
            self._sent.add(1, about)
            self._operation_s.record(time.perf_counter() - began, about)
            span.end()

        def delivered(result: Any, error: Exception | None) -> None:
            if result is not None:
                span.set_attributes(_place(result))
            ended(error)
            if tell is not None:
                tell(result, error)

        try:
            pairs = header_pairs(options.get("headers"))
            propagate.inject(pairs, trace.set_span_in_context(span), _HEADERS)
            told = None if tell is None else delivered
            wrapped(*args, **options | {"headers": pairs, "on_delivery": told})
        except BaseException as error:
            ended(error)
            raise
        if tell is None:
            ended(None)

    async def receive(
        self, wrapped: Callable[..., Any], consumer: Any, args: Any, options: dict[str, Any]
    ) -> Any:
        """Makes a span of a call that returned messages, linked to their producers."""
        began_ns, began = time.time_ns(), time.perf_counter()
        found = await wrapped(*args, **options)
        messages = [found] if isinstance(found, Message) else found
        about = _about("receive", _topic_of(messages), consumer.subscription)
        self._consumed.add(len(messages), about)
        self._operation_s.record(time.perf_counter() - began, about)
        self._tracer.start_span(
            _span_name("receive", about),
            kind=SpanKind.CLIENT,
            attributes=about | _of_messages(messages),
            links=_links(messages, _contexts(messages)),
            start_time=began_ns,
        ).end()
        return found

    def run(
        self, wrapped: Callable[..., Any], consumer: Any, args: Any, options: dict[str, Any]
    ) -> Any:
        """Makes a span of each call of the handler."""
        if args and callable(args[0]):
            args = (self._processing(args[0], consumer.subscription), *args[1:])
        elif callable(options.get("handler")):
            handler = self._processing(options["handler"], consumer.subscription)
            options = options | {"handler": handler}
        return wrapped(*args, **options)

    def _processing(self, handler: Callable[..., Any], subscription: str) -> Callable[..., Any]:
        if is_async(handler):

            @functools.wraps(handler)
            async def process(*given: Any) -> Any:
                with self._process(given, subscription):
                    return await handler(*given)
        else:

            @functools.wraps(handler)
            def process(*given: Any) -> Any:
                with self._process(given, subscription):
                    return handler(*given)

        return process

    @contextmanager
    def _process(self, given: Any, subscription: str) -> Iterator[None]:
        """`given`: a message and its work, or a list of such pairs."""
        pairs: _Given = [given] if isinstance(given[0], Message) else given[0]
        messages = [message for message, _ in pairs]
        about = _about("process", _topic_of(messages), subscription)
        self._consumed.add(sum(work.attempt == 1 for _, work in pairs), about)
        more: dict[str, Any] = dict(_of_messages(messages))
        if len(pairs) == 1:
            more |= {
                "messaging.message.id": pairs[0][1].id,
                "anabranch.attempt": pairs[0][1].attempt,
            }
        contexts = _contexts(messages)
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            _span_name("process", about),
            context=contexts[0] if len(messages) == 1 else context.Context(),
            kind=SpanKind.CONSUMER,
            attributes=about | more,
            links=_links(messages, contexts),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (Again, asyncio.CancelledError):
                raise  # the message comes again, and nothing has failed
            except BaseException as error:
                about["error.type"] = _failed(span, error)
                raise
            finally:
                self._process_s.record(time.perf_counter() - began, about)


def _about(operation: str, *named: str) -> dict[str, str]:
    """Returns the attributes of spans and of metrics. `named`: topic and subscription, if any."""
    about = {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    names = ("messaging.destination.name", "messaging.consumer.group.name")
    return about | {key: told for key, told in zip(names, named, strict=False) if told}


def _topic_of(messages: Sequence[Message]) -> str:
    """Returns the topic of all, "" if there are several."""
    topics = {message.topic for message in messages}
    return topics.pop() if len(topics) == 1 else ""


def _span_name(operation: str, about: Mapping[str, str]) -> str:
    return f"{operation} {about.get('messaging.destination.name', '')}".rstrip()


def _of_messages(messages: Sequence[Message]) -> dict[str, Any]:
    if len(messages) == 1:
        return _place(messages[0])
    return {"messaging.batch.message_count": len(messages)}


def _place(at: Message | DeliveryResult) -> dict[str, Any]:
    return {
        "messaging.destination.partition.id": f"{at.segment_id}/{at.bucket}",
        "messaging.kafka.offset": at.offset,
    }


def _contexts(messages: Sequence[Message]) -> list[context.Context]:
    return list(map(context_of, islice(messages, _LINKS_MAX)))


def _links(messages: Sequence[Message], contexts: Sequence[context.Context]) -> list[Link]:
    """Returns links to the producers of messages that tell their context."""
    told = (trace.get_current_span(each).get_span_context() for each in contexts)
    pairs = zip(messages, told, strict=False)  # the rest has no link
    return [Link(each, _place(message)) for message, each in pairs if each.is_valid]


def _failed(span: Span, error: BaseException) -> str:
    """Notes the error on the span. Returns its type."""
    kind = type(error).__qualname__
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    return kind
