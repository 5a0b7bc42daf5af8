"""A client's links to all brokers of a Kafka, and what it asks any of them."""

from __future__ import annotations

import struct

import pytest

from anabranch.devkit import ports
from anabranch.wire.kafka.link import KafkaLinks, LinkLostError
from anabranch.wire.kafka.metadata import METADATA
from anabranch.wire.kafka.producing import INIT_PRODUCER_ID, KafkaNotYetError
from anabranch.wire.kafka.protocol import Address, KafkaProtocolError, text
from support.frame_broker import HOST, TAGS, Caller, FrameBroker, frame_broker
from support.waiting import WAIT_S
from support.wire import on_both_loops

pytestmark = on_both_loops


class Member:
    """A broker that tells of the others, and gives producer ids as far as it can."""

    def __init__(self) -> None:
        self.brokers: list[Address] = []
        self.apis: list[int] = []
        self.error = 0
        self.is_silent = False

    async def serve(self, caller: Caller) -> None:
        while True:
            asked = await caller.asked()
            self.apis.append(asked.api)
            if self.is_silent:
                continue
            if asked.api == METADATA:
                caller.answer(asked, self._metadata())
            elif asked.api == INIT_PRODUCER_ID:
                told = struct.pack(">ihqh", 0, self.error, 77, 3) + TAGS
                caller.answer(asked, told)

    def _metadata(self) -> bytes:
        told = struct.pack(">i", 0) + bytes([len(self.brokers) + 1])
        for number, (host, port) in enumerate(self.brokers):
            told += struct.pack(">i", number) + text(host) + struct.pack(">i", port) + b"\0" + TAGS
        return told + text("cluster") + struct.pack(">i", 1) + b"\x01" + TAGS


def servers(*brokers: FrameBroker) -> str:
    return ",".join(f"{host}:{port}" for host, port in (each.address for each in brokers))


async def test_what_any_broker_can_tell_the_next_one_tells_where_one_does_not() -> None:
    one, two = Member(), Member()
    async with frame_broker(one.serve) as first, frame_broker(two.serve) as second:
        one.brokers = two.brokers = [first.address, second.address]
        nobody = f"{HOST}:{ports.free_port(HOST)}"
        links = KafkaLinks(f"{nobody},{servers(first)}", {})
        assert links.trouble == ""
        told = await links.metadata([], WAIT_S)
        assert told.brokers == {0: first.address, 1: second.address}
        assert links.trouble == f"{nobody}: connection refused"
        assert one.apis == [METADATA]
        one.is_silent = True
        assert (await links.metadata([], 5.0)).brokers == told.brokers
        assert one.apis == [METADATA] * 2
        assert two.apis == [METADATA]
        assert "no answer within" in links._asked[first.address].last_trouble
        await links.metadata([], WAIT_S)  # whoever answered is asked first
        assert (one.apis, two.apis) == ([METADATA] * 2, [METADATA] * 2)
        links.close()


async def test_brokers_that_kafka_no_longer_has_are_asked_no_more() -> None:
    one, two = Member(), Member()
    async with frame_broker(one.serve) as first, frame_broker(two.serve) as second:
        one.brokers = [second.address]
        links = KafkaLinks(servers(first), {})
        await links.metadata([], WAIT_S)
        assert links._in_turn == [first.address, second.address]
        one.brokers = []
        await links.metadata([], WAIT_S)
        assert links._in_turn == [first.address]
        links.close()


async def test_a_producer_id_is_given_by_any_broker_that_can() -> None:
    one, two = Member(), Member()
    async with frame_broker(one.serve) as first, frame_broker(two.serve) as second:
        one.error = 14
        links = KafkaLinks(servers(first, second), {})
        assert await links.producer_id(WAIT_S) == (77, 3)
        assert (one.apis, two.apis) == ([INIT_PRODUCER_ID], [INIT_PRODUCER_ID])
        two.error = 15
        with pytest.raises(KafkaNotYetError, match=r"no producer id yet: COORDINATOR"):
            await links.producer_id(WAIT_S)
        one.error = two.error = 31
        with pytest.raises(KafkaProtocolError, match=r"\(31\); .* IDEMPOTENT_WRITE") as told:
            await links.producer_id(WAIT_S)
        assert not isinstance(told.value, KafkaNotYetError)
        links.close()


async def test_when_no_broker_answers_kafka_s_own_words_come_first() -> None:
    one = Member()
    one.error = 31
    async with frame_broker(one.serve) as first:
        nobody = f"{HOST}:{ports.free_port(HOST)}"
        links = KafkaLinks(f"{servers(first)},{nobody}", {})
        with pytest.raises(KafkaProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await links.producer_id(WAIT_S)
        links.close()
    alone = KafkaLinks(nobody, {})
    with pytest.raises(LinkLostError, match="connection refused"):
        await alone.metadata([], WAIT_S)
    alone.close()
    with pytest.raises(KafkaProtocolError, match=r"bootstrap\.servers names no broker"):
        await KafkaLinks("", {}).metadata([], WAIT_S)


async def test_questions_to_any_broker_go_beside_the_link_of_records() -> None:
    one = Member()
    async with frame_broker(one.serve) as first:
        one.brokers = [first.address]
        links = KafkaLinks(servers(first), {})
        link = links.link(first.address)
        assert links.link(first.address) is link
        held = link.send(0, 9, b"", WAIT_S)
        await links.metadata([], WAIT_S)
        assert len(first.callers) == 2
        links.close()
        with pytest.raises(LinkLostError, match="the client was closed"):
            await held
        with pytest.raises(LinkLostError, match="the client was closed"):
            await links.link((HOST, 1)).send(0, 9, b"", WAIT_S)
