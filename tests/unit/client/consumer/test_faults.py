"""What a consumer's parts do when they cannot go on: they say so, and wait for nothing."""

from __future__ import annotations

import asyncio
import math
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from anabranch.client import ClientError, LayoutWatch, ReadSettings
from anabranch.client._consumer import group_offsets
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.group_offsets import GroupOffsets
from anabranch.client._consumer.reads import Missing, ReadTrouble, size_of
from anabranch.client._consumer.session import ConsumerSession, Identity
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import ScalableConsumerType
from support.nobody import nobody
from support.waiting import WAIT_S


def test_a_fault_in_the_session_fails_the_consumer_at_once() -> None:
    async def test() -> None:
        nodes = Nodes("pulsar://127.0.0.1:1")
        watch = LayoutWatch(nodes, "topic://public/default/orders")  # not started: it raises
        who = Identity(watch.topic, "billing", "one", 1, ScalableConsumerType.STREAM)
        told = asyncio.Event()
        session = ConsumerSession(ConsumerCore(1.0), who, nodes, watch, clock.now, told.set)
        with pytest.raises(ClientError, match="ended by a fault"):
            await session.start(timeout_s=60.0)
        assert told.is_set()
        await session.close(0.1)

    asyncio.run(asyncio.wait_for(test(), WAIT_S))


def test_a_commit_without_kafka_is_given_up_before_the_session_lapses(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with nobody() as servers:

        async def test() -> None:
            kafka = {"bootstrap.servers": servers, "group.id": "billing"}
            group = GroupOffsets(kafka, session_s=2.0)
            try:
                with pytest.raises(KafkaException):
                    await asyncio.wait_for(group.commit({("orders", 0): 5}, math.inf), WAIT_S)
            finally:
                await asyncio.to_thread(group.close)

        asyncio.run(test())
    assert capfd.readouterr().err == ""


def test_a_commit_whose_session_was_over_when_its_turn_came_is_not_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10.0
    asked: list[object] = []

    class Slow:
        """Takes until the session is over, and says then that nobody answered."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def commit(self, offsets: object, asynchronous: bool) -> None:
            nonlocal now
            now = 11.1
            asked.append(offsets)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def close(self) -> None:
            pass

    async def test() -> None:
        group = GroupOffsets({}, 2.0, lambda: now)
        commits = [group.commit({("orders", 0): offset}, until=11.0) for offset in (5, 6)]
        first, queued = await asyncio.gather(*commits, return_exceptions=True)
        assert isinstance(first, KafkaException)
        assert queued is False
        assert len(asked) == 1
        await asyncio.to_thread(group.close)

    monkeypatch.setattr(group_offsets, "Consumer", Slow)
    asyncio.run(test())


def test_a_topic_that_is_asked_for_while_reading_ends_keeps_nobody_waiting() -> None:
    with nobody() as servers:

        async def test() -> None:
            kafka = {"bootstrap.servers": servers, "group.id": "billing"}
            plane = DataPlane(kafka, ReadSettings(), lambda: None, trouble()[0])
            asked = [asyncio.create_task(plane.warm([f"orders-{n}"])) for n in range(3)]
            await asyncio.sleep(0)
            await plane.close()
            with pytest.raises(KafkaException, match="ended"):
                await asyncio.wait_for(plane.warm(["late"]), WAIT_S)
            answers = asyncio.gather(*asked, return_exceptions=True)
            told = await asyncio.wait_for(answers, WAIT_S)
            assert all(isinstance(each, KafkaException) for each in told)

        asyncio.run(test())


def trouble() -> tuple[ReadTrouble, list[str]]:
    told: list[str] = []
    return ReadTrouble(lambda: told.append("failed")), told


def test_what_kafka_refuses_for_good_is_a_failure_and_what_passes_is_remembered() -> None:
    async def test() -> None:
        passing, told = trouble()
        passing.note(KafkaError(KafkaError.NOT_COORDINATOR), "to commit")
        assert passing.failure is None
        assert KafkaError(KafkaError.NOT_COORDINATOR).str() in passing.last
        passing.well()
        assert passing.last == ""
        passing.note(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "to commit")
        assert "for good to commit" in str(passing.failure)
        await asyncio.sleep(0)
        assert told == ["failed"]

    asyncio.run(test())


def test_what_kafka_lacks_many_times_a_second_is_warned_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        now = [50.0]
        passing = ReadTrouble(lambda: None, lambda: now[0])
        down, refused = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError.NOT_COORDINATOR)
        for _ in range(1_000):
            passing.note(down)
            passing.well()  # one of several brokers answers
            now[0] += 0.02
        passing.note(refused, "to commit")
        passing.note(down, "to commit")

    asyncio.run(test())
    fields = [vars(record)["fields"] for record in caplog.records]
    assert [(each["code"], each.get("times")) for each in fields] == [
        ("_TRANSPORT", None),
        ("_TRANSPORT", 500),
        ("NOT_COORDINATOR", None),
        ("_TRANSPORT", None),
    ]


def test_a_topic_is_gone_for_good_once_it_was_missing_for_long_enough_without_a_break() -> None:
    missing = Missing(30.0)
    assert not missing.missed("orders", 100.0)
    missing.found("orders")
    assert not missing.topics
    assert not missing.missed("orders", 120.0)
    assert not missing.missed("orders", 149.0)
    assert missing.missed("orders", 150.0)


def test_the_size_of_a_long_batch_is_told_by_some_of_its_messages() -> None:
    def batch(*sizes: int) -> list[Message]:
        return cast("list[Message]", [b"x" * size for size in sizes])

    assert size_of(batch(1, 2, 3), 7) == 6
    long = batch(*(1_000 if number % 4 == 0 else 0 for number in range(2_000)))
    told = [size_of(long, turn) for turn in range(4)]
    assert sum(told) / 4 == 500_000, "no pattern hides the large ones for long"
