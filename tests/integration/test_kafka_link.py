"""A producer's own numbers, sent to a real Kafka over a link of our own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.wire.kafka.link import KafkaLink, KafkaLinks
from anabranch.wire.kafka.metadata import TopicMetadata
from anabranch.wire.kafka.producing import (
    PRODUCE,
    PRODUCE_VERSION,
    KafkaCode,
    KafkaNotYetError,
    ProducedPartition,
    produce_request,
    read_produced,
)
from anabranch.wire.kafka.protocol import KafkaProtocolError
from support.hand_made_batches import numbered_batch
from support.quiet import QUIET
from support.secured_kafka import LIMITED, SCRAM, SecuredKafka
from support.waiting import WAIT_S, eventually


def _make_topic(servers: str, topic: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(WAIT_S)


async def _led(links: KafkaLinks, topic: str) -> KafkaLink:
    """The link to who leads the second partition of a new topic."""
    found: list[KafkaLink] = []

    async def is_led() -> bool:
        told = await links.metadata([topic], WAIT_S)
        there = told.topics[topic]
        if isinstance(there, TopicMetadata) and there.partitions[1].leader in told.brokers:
            found.append(links.link(told.brokers[there.partitions[1].leader]))
        return bool(found)

    await eventually(is_led)
    return found[0]


async def _producer_id(links: KafkaLinks) -> tuple[int, int]:
    """Of a Kafka that may have just begun."""
    found: list[tuple[int, int]] = []

    async def is_given() -> bool:
        with suppress(KafkaNotYetError):
            found.append(await links.producer_id(WAIT_S))
        return bool(found)

    await eventually(is_given)
    return found[0]


async def _append(link: KafkaLink, topic: str, batch: bytes) -> ProducedPartition:
    body = produce_request({topic: [(1, batch)]}, int(WAIT_S * 1_000))
    (told,) = read_produced(await link.send(PRODUCE, PRODUCE_VERSION, body, WAIT_S)).partitions
    assert (told.topic, told.partition) == (topic, 1)
    return told


async def test_kafka_stores_what_has_the_next_numbers_once(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}-numbered"
    _make_topic(kafka.bootstrap_servers, topic)
    links = KafkaLinks(kafka.bootstrap_servers, {})
    try:
        link = await _led(links, topic)
        ids = [await _producer_id(links) for _ in range(2)]
        assert ids[0][0] != ids[1][0]
        producer_id, epoch = ids[0]
        first = numbered_batch(producer_id, epoch, 0, [b"a", b"b", b"c"])

        async def eventually_led() -> bool:
            told = await _append(link, topic, first)
            return told.error != KafkaCode.NOT_LEADER_OR_FOLLOWER

        await eventually(eventually_led)
        again = await _append(link, topic, first)
        assert (again.error, again.offset, again.start_offset) == (0, 0, 0)
        second = await _append(link, topic, numbered_batch(producer_id, epoch, 3, [b"d"]))
        assert (second.error, second.offset) == (0, 3)
        gap = await _append(link, topic, numbered_batch(producer_id, epoch, 9, [b"e"]))
        assert (gap.error, gap.offset) == (KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        # Another one's numbers are its own; and what was asked together is answered together.
        other = [numbered_batch(*ids[1], number, [b"%d" % number]) for number in range(20)]
        told = await asyncio.gather(*(_append(link, topic, each) for each in other))
        assert [each.offset for each in told] == list(range(4, 24))
        broken = bytearray(numbered_batch(producer_id, epoch, 4, [b"f"]))
        broken[-2] ^= 1
        assert (await _append(link, topic, bytes(broken))).error == KafkaCode.CORRUPT_MESSAGE
        assert links.trouble == ""
    finally:
        links.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_kafka_that_is_guarded_lets_in_whom_it_knows(
    secured_kafka: SecuredKafka, topic_prefix: str, mechanism: str
) -> None:
    topic = f"{topic_prefix}-guarded"
    _make_topic(secured_kafka.open_at, topic)
    servers = secured_kafka.bootstrap_servers
    links = KafkaLinks(servers, secured_kafka.security(mechanism=mechanism))
    limited = KafkaLinks(servers, secured_kafka.security(LIMITED, mechanism=mechanism))
    unknown = KafkaLinks(servers, secured_kafka.security(password="wrong", mechanism=mechanism))
    try:
        link = await _led(links, topic)
        told = await _append(link, topic, numbered_batch(-1, -1, -1, [b"a"]))
        assert told.error == 0
        refused = await _append(
            limited.link(link.address), topic, numbered_batch(-1, -1, -1, [b"a"])
        )
        assert refused.error == KafkaCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaProtocolError, match="does not let this client in") as why:
            await unknown.metadata([], WAIT_S)
        assert "wrong" not in str(why.value)
    finally:
        for each in (links, limited, unknown):
            each.close()
