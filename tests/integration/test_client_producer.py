"""The SDK's producer on a real Kafka, while segments split and merge at moments of our choosing."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest
from confluent_kafka.serialization import StringSerializer

from anabranch.client import (
    MessageTooLargeError,
    SerializationError,
)
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    BrokerConnection,
    array,
    bootstrap_addresses,
    text,
)
from support.hand_made_topic import HandMadeTopic
from support.waiting import WAIT_S

_ALTER: Final = 49
_VERSION: Final = 1


@contextmanager
def client_quota(servers: str, client_id: str, bytes_per_s: float) -> Iterator[None]:
    """What producers of that id may write, meanwhile."""
    _alter(servers, client_id, bytes_per_s, remove=False)
    try:
        yield
    finally:
        _alter(servers, client_id, bytes_per_s, remove=True)


def _alter(servers: str, client_id: str, bytes_per_s: float, *, remove: bool) -> None:
    who = array([text("client-id") + text(client_id) + NO_TAGS])
    what = array([text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, remove) + NO_TAGS])
    (address,) = bootstrap_addresses(servers)
    with closing(BrokerConnection(address, {}, WAIT_S)) as connection:
        asked = array([who + what + NO_TAGS]) + b"\0" + NO_TAGS
        answer = connection.ask(_ALTER, _VERSION, asked)
    answer.skip(4)  # throttle time
    assert answer.count() == 1
    assert answer.unpack(">h") == (0,)


_KEYS = [b"key-%d" % number for number in range(200)]


async def test_what_a_sealed_segment_refused_arrives_as_it_was_sent(made: HandMadeTopic) -> None:
    producer = await made.client.create_producer("public/default/orders")
    for key in _KEYS:
        await producer.send(b"0", key)  # so that all that follows takes the short way
    children = made.layout.split_children(0)
    await made.make(children)
    made.parents, made.children = (0,), children
    ends = await made.seal()  # before any push
    began_ms = int(time.time() * 1000)
    for number, key in enumerate(_KEYS, start=1):
        await producer.post(b"event %d" % number, key, event_time_ms=number)
        await producer.post(b"plain", key)
        await producer.post(b"", key)
        await producer.post(None, key)  # a tombstone
        await producer.post(b"named", key.decode(), headers={"h": b"x"})
    await producer.send_many((key, b"plain") for key in _KEYS)
    made.start_sealing()
    made.commit(ends)
    await producer.flush(WAIT_S)

    there = [each for some in made.read().values() for each in some if each.value() != b"0"]
    now_ms = int(time.time() * 1000)
    found = defaultdict(list)
    for message in there:
        found[message.key()].append(message.value())
        word, _, event_time = (message.value() or b"").partition(b" ")
        _, time_ms = message.timestamp()
        if word == b"event":
            assert time_ms == int(event_time)
        else:
            assert began_ms <= time_ms <= now_ms
        assert (("h", b"x") in (message.headers() or [])) == (word == b"named")
    for number, key in enumerate(_KEYS, start=1):
        sent = [b"event %d" % number, b"plain", b"", None, b"named", b"plain"]
        assert found[key] == sent


async def test_a_message_beyond_the_limit_is_refused_by_name_and_is_no_seal(
    made: HandMadeTopic,
) -> None:
    made.max_message_bytes = 10_000
    made.push()
    producer = await made.client.create_producer("public/default/orders")
    await producer.send(b"x" * 9_000, "key")
    with pytest.raises(MessageTooLargeError, match="10000 bytes"):
        await producer.send(b"x" * 10_000, "key")
    with pytest.raises(MessageTooLargeError):
        await producer.send_many([("key", b"before"), ("key", b"x" * 10_000)])
    await producer.send(b"after", "key")

    assert [value[:6] for value in made.by_key()[b"key"]] == [b"xxxxxx", b"before", b"after"]


async def test_a_value_that_a_serializer_refuses_harms_no_other(made: HandMadeTopic) -> None:
    def numbers_only(value: object, _context: object) -> bytes:
        if not isinstance(value, int):
            raise ValueError("not a number")
        return b"%d" % value

    producer = await made.client.create_producer(
        "public/default/orders", value_serializer=numbers_only, key_serializer=StringSerializer()
    )
    await producer.send(1, "key")
    with pytest.raises(SerializationError, match="not a number"):
        await producer.send("two", "key")
    await producer.send(3, "key")

    assert made.by_key() == {b"key": [b"1", b"3"]}


async def test_what_is_no_message_is_refused_on_every_path_and_the_others_go_on(
    made: HandMadeTopic,
) -> None:
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [
        (5, "key", {}),
        (b"v", 5, {}),
        (b"v", "\ud800", {}),
        ("\ud800", "key", {}),
        (b"v", "key", {"headers": {"a": 1}}),
        (b"v", "key", {"event_time_ms": -1}),
    ]
    producer = await made.client.create_producer("public/default/orders")
    await producer.send(b"1", "key")  # from here on its key takes the short way
    for value, key, more in wrong:
        with pytest.raises((SerializationError, InvalidInputError)):
            producer.send_nowait(value, key, **more)
        with pytest.raises((SerializationError, InvalidInputError)):
            await producer.post(value, key, **more)
        with pytest.raises((SerializationError, InvalidInputError)):
            await producer.send(value, key, **more)
        if not more:
            with pytest.raises((SerializationError, InvalidInputError)):
                await producer.send_many([(key, value)])
    assert producer.under_way == 0
    for bad in (5, [5], [("key",)], [("key", b"v", b"w")]):
        with pytest.raises(InvalidInputError, match="pairs"):
            await producer.send_many(bad)  # type: ignore[arg-type]
    with pytest.raises(SerializationError):
        await producer.send_many([("key", b"2"), ("key", 5)])
    await producer.send(b"3", "key")
    assert made.by_key() == {b"key": [b"1", b"2", b"3"]}


async def test_a_client_that_kafka_throttles_for_longer_than_its_time_out_loses_nothing(
    made: HandMadeTopic, kafka: EmbeddedKafka
) -> None:
    name, told = "public/default/orders", list[BaseException | None]()
    producer = await made.client.create_producer(name, delivery_timeout_s=4.0)
    with client_quota(kafka.bootstrap_servers, "anabranch-producer", 20_000):
        for number in range(250):
            await producer.post(
                bytes(1_000), f"k{number % 50}", on_delivery=lambda _, error: told.append(error)
            )
        await producer.flush()
    assert told == [None] * 250
