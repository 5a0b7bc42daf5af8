"""An application of FastStream on the broker in memory."""

from __future__ import annotations

from typing import Any

import pytest
from faststream import BaseMiddleware, FastStream, TestApp
from faststream.exceptions import (
    FeatureNotSupportedException,
    IncorrectState,
    RejectMessage,
    SetupError,
)
from faststream.middlewares import AckPolicy
from faststream.specification import AsyncAPI
from pydantic import BaseModel, ValidationError

from anabranch.client import (
    Backoff,
    DecryptionError,
    ProducerSettings,
    Retry,
    SerializationError,
)
from anabranch.client.faststream import (
    AnabranchBroker,
    AnabranchMessage,
    AnabranchResponse,
    AnabranchRouter,
    TestAnabranchBroker,
)
from anabranch.core.errors import InvalidInputError

ORDERS, INVOICES = "topic://public/default/orders", "topic://public/default/invoices"


class Order(BaseModel):
    customer: str
    cents: int


class Invoice(BaseModel):
    customer: str
    total: int


@pytest.fixture
def broker() -> AnabranchBroker:
    return AnabranchBroker("pulsar://node:6650")


async def test_a_handler_gets_what_is_published_and_its_result_goes_on_with_its_key(
    broker: AnabranchBroker,
) -> None:
    sent = broker.publisher(INVOICES, key=lambda invoice: invoice.customer, headers={"by": "bill"})

    @broker.subscriber(ORDERS, subscription="billing")
    @sent
    async def bill(order: Order, message: AnabranchMessage) -> Invoice:
        seen.append((message.key, message.headers["of"], message.work.attempt, message.message_id))
        return Invoice(customer=order.customer, total=order.cents)

    @broker.subscriber(INVOICES, subscription="mail")
    async def mail(invoice: Invoice, message: AnabranchMessage) -> None:
        mailed.append((invoice.total, message.key, message.headers["by"], message.correlation_id))

    seen: list[Any] = []
    mailed: list[Any] = []
    async with TestAnabranchBroker(broker):
        order = Order(customer="ada", cents=5)
        await broker.publish(order, ORDERS, key=b"k", headers={"of": "x"}, correlation_id="c")
        bill.mock.assert_called_once_with({"customer": "ada", "cents": 5})
        sent.mock.assert_called_once_with({"customer": "ada", "total": 5})
        await sent.publish(Invoice(customer="bob", total=1), key="own", correlation_id="d")
    assert seen == [(b"k", "x", 1, "1/0/0@0")]
    assert mailed == [(5, b"ada", "bill", "c"), (1, b"own", "bill", "d")]


async def test_a_response_has_its_own_key_and_a_publisher_without_a_subscriber_its_mock(
    broker: AnabranchBroker,
) -> None:
    sent = broker.publisher(INVOICES, key="other")

    @sent
    @broker.subscriber(ORDERS, subscription="billing")
    async def bill(order: str) -> AnabranchResponse:
        return AnabranchResponse(f"of {order}", key="own", headers={"a": "b"}, event_time_ms=7)

    async with TestAnabranchBroker(broker):
        result = await broker.publish("one", "public/default/orders")
        assert (result.topic, result.offset) == ("public/default/orders", 0)
        sent.mock.assert_called_once_with("of one")
        await sent.assert_called_once_with("of one", headers={"a": "b"})
        (call,) = sent._recorder.calls
        raw = call.message.raw_message.message
        assert (raw.key, raw.event_time_ms, raw.topic) == (b"own", 7, "public/default/invoices")


async def test_each_subscription_gets_a_message_once(broker: AnabranchBroker) -> None:
    got: list[str] = []

    def declare(name: str) -> Any:
        @broker.subscriber(ORDERS, subscription=name)
        async def handle(_body: str) -> None:
            got.append(name)

        return handle

    kept = [declare(name) for name in ("billing", "billing", "mail")]
    async with TestAnabranchBroker(broker):
        await broker.publish("one", ORDERS)
    assert sorted(got) == ["billing", "mail"]
    assert len(kept) == 3


async def test_a_body_that_is_no_order_and_a_handler_that_fails_raise_where_it_was_published(
    broker: AnabranchBroker,
) -> None:
    @broker.subscriber(ORDERS, subscription="billing", retry=Retry(then="stop"))
    async def bill(order: Order) -> None:
        if order.cents == 1:
            raise RejectMessage
        raise ConnectionError("the database is away")

    async with TestAnabranchBroker(broker):
        with pytest.raises(ValidationError, match="cents"):
            await broker.publish({"customer": "ada"}, ORDERS)
        with pytest.raises(ConnectionError):
            await broker.publish({"customer": "ada", "cents": 2}, ORDERS)
        await broker.publish({"customer": "ada", "cents": 1}, ORDERS)


async def test_a_tombstone_has_no_value_and_is_received_as_an_empty_body(
    broker: AnabranchBroker,
) -> None:
    @broker.subscriber(ORDERS, subscription="billing")
    async def handle(body: bytes, message: AnabranchMessage) -> None:
        got.append((body, message.raw_message.message.value))

    got: list[Any] = []
    async with TestAnabranchBroker(broker):
        await broker.publish(None, ORDERS, key="k")
        await broker.publish(None, ORDERS)
    assert got == [(b"", None), (b"", b"")]


async def test_middlewares_of_broker_and_router_see_what_is_received_and_published() -> None:
    class Marking(BaseMiddleware):
        async def on_receive(self) -> None:
            seen.append("received")

        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(msg.key)
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.headers["marked"] = cmd.key or ""
            return await call_next(cmd)

    class OfRouter(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(msg.headers["marked"])
            return await call_next(msg)

    seen: list[Any] = []
    broker = AnabranchBroker("pulsar://node:6650", middlewares=[Marking])
    router = AnabranchRouter("topic://public/default/", middlewares=[OfRouter])

    @router.subscriber("orders", subscription="billing")
    @router.publisher("invoices")
    async def bill(order: str) -> AnabranchResponse:
        return AnabranchResponse(order, key="of bill")

    broker.include_router(router)

    @broker.subscriber(INVOICES, subscription="mail")
    async def mail(_body: str, message: AnabranchMessage) -> None:
        seen.append(message.headers["marked"])

    async with TestAnabranchBroker(broker):
        await broker.publish("one", ORDERS, key="k")
        bill.mock.assert_called_once_with("one")
    assert seen == ["received", b"k", "k", "received", b"of bill", "of bill"]


async def test_values_are_encrypted_and_deserialized_as_by_the_sdk() -> None:
    def undo(data: bytes) -> bytes:
        return bytes(reversed(data))

    broker = AnabranchBroker("pulsar://node:6650", producer=ProducerSettings(encrypt=undo))

    @broker.subscriber(ORDERS, subscription="plain", decrypt=undo)
    async def plain(order: Order) -> None:
        assert order.cents == 5

    def deserialized(data: bytes, context: Any) -> tuple[bytes, str]:
        return data, context.topic

    @broker.subscriber(INVOICES, subscription="raw", value_deserializer=deserialized, queue=True)
    async def raw(body: Any) -> None:
        got.append(body)

    got: list[Any] = []
    async with TestAnabranchBroker(broker):
        await broker.publish({"customer": "ada", "cents": 5}, ORDERS)
        plain.mock.assert_called_once()
        await broker.publish("abc", INVOICES)
    assert got == [(b"cba", "public/default/invoices")]


async def test_what_cannot_be_decrypted_is_an_attempt_that_fails(broker: AnabranchBroker) -> None:
    def refuses(_data: bytes) -> bytes:
        raise ValueError("no such secret")

    @broker.subscriber(ORDERS, subscription="plain", decrypt=refuses)
    async def handle(body: str) -> None:
        raise AssertionError

    async with TestAnabranchBroker(broker):
        with pytest.raises(DecryptionError, match="no such secret"):
            await broker.publish("one", ORDERS)


@pytest.mark.parametrize(
    ("topic", "options", "error", "what"),
    [
        ("persistent://a/b/c", {}, InvalidInputError, "topic://"),
        ("orders", {}, InvalidInputError, "tenant/namespace"),
        (ORDERS, {"key": 5}, SerializationError, "a key of .*orders is a int"),
        (ORDERS, {"headers": {"a": 5}}, InvalidInputError, "header 'a'"),
        (ORDERS, {"event_time_ms": -1}, InvalidInputError, "event_time_ms"),
    ],
)
async def test_what_a_producer_refuses_the_test_broker_refuses_too(
    broker: AnabranchBroker, topic: str, options: Any, error: type[Exception], what: str
) -> None:
    async with TestAnabranchBroker(broker):
        with pytest.raises(error, match=what):
            await broker.publish("one", topic, **options)


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"concurency": 5}, InvalidInputError, "no option concurency: it has .*concurrency"),
        ({"retry": Retry(), "queue": True}, InvalidInputError, "queue=True has no option retry"),
        ({"messages_max": 5}, InvalidInputError, "queue=False has no option messages_max"),
        ({"concurrency": 0}, InvalidInputError, "concurrency is 1"),
        ({"queue": True, "delay_s": Backoff(first=-1)}, InvalidInputError, "Backoff"),
        ({"timeout_s": 60.0, "settle_timeout_s": 5.0}, InvalidInputError, "settle_timeout_s"),
        ({"ack_policy": AckPolicy.ACK_FIRST}, SetupError, "ACK_FIRST is not offered"),
    ],
)
def test_a_wrong_option_is_told_where_the_subscriber_is_declared(
    broker: AnabranchBroker, options: Any, error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        broker.subscriber(ORDERS, subscription="billing", **options)
    assert broker.subscribers == []


def test_a_type_checker_knows_the_options(broker: AnabranchBroker) -> None:
    """Its run fails where it has nothing to say of a line that is marked."""
    with pytest.raises(InvalidInputError):
        broker.subscriber(ORDERS, subscription="billing", concurency=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidInputError):
        broker.subscriber(ORDERS, subscription="billing", retry=5)  # type: ignore[arg-type]
    broker.publisher(ORDERS, key=5)  # type: ignore[arg-type]


def test_a_broker_refuses_what_a_client_refuses() -> None:
    with pytest.raises(InvalidInputError, match="URL of a cluster"):
        AnabranchBroker("kafka://node:9092")
    with pytest.raises(InvalidInputError, match="compression"):
        AnabranchBroker("pulsar://node:6650", kafka={"compression": "x"})


async def test_what_is_not_offered_says_so_and_names_the_remedy(broker: AnabranchBroker) -> None:
    publisher = broker.publisher(ORDERS)
    subscriber = broker.subscriber(ORDERS, subscription="billing")
    for call, what in (
        (broker.request("one", ORDERS), "subscribe to a topic of answers"),
        (publisher.request("one"), "subscribe to a topic of answers"),
        (broker.publish_batch("one", queue=ORDERS), "support publishing in batches"),
        (subscriber.get_one(), "use receive"),
    ):
        with pytest.raises(FeatureNotSupportedException, match=what):
            await call
    with pytest.raises(FeatureNotSupportedException, match="use receive"):
        async for _ in subscriber:
            pass
    with pytest.raises(IncorrectState, match="connect"):
        await broker.publish("one", ORDERS)
    assert not await broker.ping()


def test_asyncapi_tells_servers_channels_and_payloads() -> None:
    broker = AnabranchBroker("pulsar+ssl://one:6651,two", description="orders and invoices")
    router = AnabranchRouter("topic://public/default/")

    @router.subscriber("orders", subscription="billing", description="Bills an order.")
    @router.publisher("invoices", title="Invoices")
    async def bill(order: Order) -> Invoice:
        return Invoice(customer=order.customer, total=order.cents)

    @router.subscriber("hidden", subscription="billing", include_in_schema=False)
    async def hide(_order: Order) -> None: ...

    broker.include_router(router)
    document: Any = AsyncAPI(broker).to_specification().to_jsonable()
    told = document["servers"].values()
    assert [(each["host"], each["protocol"]) for each in told] == [
        ("one:6651", "pulsar+ssl"),
        ("two", "pulsar+ssl"),
    ]
    addresses = {name: each["address"] for name, each in document["channels"].items()}
    assert addresses == {"public.default.orders:Bill": ORDERS, "Invoices": INVOICES}
    assert document["channels"]["public.default.orders:Bill"]["description"] == "Bills an order."
    schemas = document["components"]["schemas"]
    assert schemas["Order"]["required"] == ["customer", "cents"]
    assert set(schemas["Invoice"]["properties"]) == {"customer", "total"}
    old: Any = AsyncAPI(broker, schema_version="2.6.0").to_specification().to_jsonable()
    assert len(old["channels"]) == 2


async def test_an_application_runs_its_hooks_with_the_test_broker(broker: AnabranchBroker) -> None:
    app = FastStream(broker)

    @broker.subscriber(ORDERS, subscription="billing")
    def plain(order: str) -> None:
        got.append(order)

    @app.after_startup
    async def send() -> None:
        await broker.publish("one", ORDERS)

    got: list[str] = []
    async with TestAnabranchBroker(broker), TestApp(app):
        pass
    assert got == ["one"]
