"""End-to-end encryption: what Kafka then has, what a relay can tell, and what goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Message

from anabranch import client as sdk
from anabranch.core.hashing import hash32
from anabranch.core.topics.entries import BOUNDS_HEADERS, ENTRY_MIN, bounds_headers
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.hand_made_topic import HandMadeTopic
from support.record_batches import batches_of
from support.waiting import WAIT_S, until

_KEYS = [f"key-{number}" for number in range(40)]


def xor(data: bytes) -> bytes:
    """Both ways; what hides the text is all that matters here."""
    return bytes(each ^ 0x5A for each in data)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    found: Any = message.headers()
    return list(found or ())


def bounds_of(message: Message) -> list[tuple[str, bytes | None]]:
    return [pair for pair in headers_of(message) if pair[0] in BOUNDS_HEADERS]


def sizes(kafka: EmbeddedKafka, topic: HandMadeTopic) -> list[int]:
    """Records of each batch that Kafka has of the topic."""
    return [
        count
        for part in topic.layout.segments.values()
        for bucket in range(part.buckets)
        for count in batches_of(kafka, topic.kafka_topic(part), bucket)
    ]


@pytest.mark.parametrize("buckets", [2])
async def test_kafka_has_only_what_was_encrypted_and_each_message_says_where_it_belongs(
    made: HandMadeTopic,
) -> None:
    producer = await made.client.create_producer(made.name, encrypt=xor)
    await producer.send_many((key, f"to {key}") for key in _KEYS)
    forged = {ENTRY_MIN: "of another", "trace": "7"}
    await producer.send("relayed", _KEYS[0], headers=forged)
    await producer.flush()

    for bucket in made.read().values():
        for message in bucket:
            key, value = message.key() or b"", message.value() or b""
            assert xor(value) in (b"to " + key, b"relayed")
            assert bounds_of(message) == bounds_headers(hash32(key))
            names = [name for name, _ in headers_of(message)]
            assert len(names) == len(set(names))  # the copied bounds were replaced
            assert ("trace" in names) == (xor(value) == b"relayed")


@pytest.mark.parametrize("buckets", [2])
async def test_a_producer_that_does_not_encrypt_stamps_on_every_path_and_batches_all_the_same(
    kafka: EmbeddedKafka, made: HandMadeTopic
) -> None:
    producer = await made.client.create_producer(made.name, stamp_bounds=True, linger_ms=200)
    await producer.send_many((key, b"many") for key in _KEYS)
    await producer.send_many((key, b"many") for key in _KEYS)
    await asyncio.gather(*(producer.send(b"one", key) for key in _KEYS))

    found = [message for bucket in made.read().values() for message in bucket]
    assert len(found) == 3 * len(_KEYS)
    for message in found:
        assert bounds_of(message) == bounds_headers(hash32(message.key() or b""))
    assert max(sizes(kafka, made)) > 1


@pytest.mark.parametrize("buckets", [2])
async def test_messages_without_key_have_no_bounds_and_those_without_value_are_not_encrypted(
    made: HandMadeTopic,
) -> None:
    producer = await made.client.create_producer(made.name, encrypt=xor)
    await producer.send(b"anywhere")
    await producer.send(None, "gone")

    found = [message for bucket in made.read().values() for message in bucket]
    by_key = {message.key(): message for message in found}
    assert bounds_of(by_key[None]) == []
    assert by_key[None].value() == xor(b"anywhere")
    assert by_key[b"gone"].value() is None
    assert bounds_of(by_key[b"gone"])


async def _later(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize("buckets", [2])
async def test_what_cannot_be_encrypted_is_told_and_the_others_go_on(made: HandMadeTopic) -> None:
    def encrypt(data: bytes) -> Any:
        if data == b"raise":
            raise KeyError("no key for it")
        if data == b"late":
            return _later(data)
        return {b"none": None, b"text": "text"}.get(data, xor(data))

    producer = await made.client.create_producer(made.name, encrypt=encrypt)
    await producer.send(b"1", "key")
    for value, says in (
        (b"raise", "KeyError: 'no key for it'"),
        (b"none", "NoneType instead of bytes"),
        (b"text", "str instead of bytes"),
        (b"late", "coroutine instead of bytes"),
    ):
        with pytest.raises(sdk.EncryptionError, match=says):
            await producer.send(value, "key")
        with pytest.raises(sdk.EncryptionError, match=says):
            await producer.post(value, "key")
        with pytest.raises(sdk.EncryptionError, match=says):
            await producer.send_many([("key", b"2"), ("key", value), ("key", b"never")])
    await producer.send(b"3", "key")
    await producer.flush()

    assert producer.under_way == 0
    assert made.by_key() == {b"key": [xor(each) for each in (b"1", *[b"2"] * 4, b"3")]}


@pytest.mark.parametrize("buckets", [2])
async def test_the_limit_is_for_what_is_sent_not_for_what_was_given(made: HandMadeTopic) -> None:
    producer = await made.client.create_producer(made.name, encrypt=lambda data: data * 20)
    with pytest.raises(sdk.MessageTooLargeError):
        await producer.send(b"x" * 100_000, "key")
    await producer.send(b"x" * 1_000, "key")


async def test_consumers_of_all_kinds_decrypt(client: sdk.Client, topic: str) -> None:
    producer = await client.create_producer(topic, encrypt=xor)
    await producer.send_many((key, key) for key in _KEYS)
    await producer.flush()
    await producer.send(None, "gone")

    wanted = {None, *(key.encode() for key in _KEYS)}
    makers: Any = (client.subscribe, client.subscribe_queue, client.subscribe_checkpoint)
    for number, make in enumerate(makers):
        consumer: Any = await make(topic, f"reader-{number}", decrypt=xor)
        seen: set[bytes | None] = set()
        while not seen >= wanted:
            batch = await consumer.receive_many(timeout_s=WAIT_S)
            values = batch.values()
            assert values == [message.value for message in batch]
            seen.update(values)
            for message in batch:
                if hasattr(consumer, "acknowledge"):
                    consumer.acknowledge(message)
        assert seen == wanted
        await consumer.close()


async def test_what_cannot_be_decrypted_is_told_of_that_message_only(
    client: sdk.Client, topic: str
) -> None:
    def decrypt(data: bytes) -> Any:
        if data == b"plain":
            raise ValueError("no such key")
        return None if data == b"odd" else xor(data)

    plain = await client.create_producer(topic)
    secret = await client.create_producer(topic, encrypt=xor)
    await plain.send(b"plain", "key")
    await plain.send(b"odd", "key")
    await secret.send(b"7", "key")
    consumer = await client.subscribe(
        topic, "reader", decrypt=decrypt, value_deserializer=lambda data, _: int(data)
    )
    for says in ("cannot be decrypted: ValueError: no such key", "NoneType instead of bytes"):
        message = await consumer.receive(WAIT_S)
        with pytest.raises(sdk.DecryptionError, match=says) as told:
            _ = message.value
        assert isinstance(told.value, sdk.DeserializationError)
        assert message.key == b"key"
        consumer.acknowledge(message)
    message = await consumer.receive(WAIT_S)
    assert message.value == 7  # decrypted first, then deserialized
    consumer.acknowledge(message)


@pytest.mark.parametrize("buckets", [2])
async def test_encrypted_messages_keep_their_order_and_bounds_over_a_split(
    kafka: EmbeddedKafka, made: HandMadeTopic
) -> None:
    producer = await made.client.create_producer(made.name, encrypt=xor)

    async def send() -> None:
        for number in range(100):
            for key in _KEYS:
                await producer.post(b"%d" % number, key)
            await asyncio.sleep(0.002)

    sending = asyncio.create_task(send())
    await until(lambda: producer.under_way > 0)
    await made.split(0)
    await sending
    await producer.flush()

    wanted = [xor(b"%d" % number) for number in range(100)]
    assert made.by_key() == {key.encode(): wanted for key in _KEYS}
    assert set(sizes(kafka, made)) == {1}
    found = made.read()
    assert len({segment_id for segment_id, bucket in found if found[segment_id, bucket]}) > 1
    assert all(bounds_of(each) for bucket in found.values() for each in bucket)
