"""What a consumer's parts do when they cannot go on: they say so, and wait for nothing."""

from __future__ import annotations

import asyncio
import math
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from anabranch.client import ClientError, LayoutWatch, ReadSettings
from anabranch.client._consumer import group_offsets
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.group_offsets import Answers, GroupOffsets, Position
from anabranch.client._consumer.reads import ReadTrouble, size_of
from anabranch.client._consumer.session import ConsumerSession, Identity
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import ScalableConsumerType
from support.nobody import nobody
from support.waiting import WAIT_S


async def test_a_fault_in_the_session_fails_the_consumer_at_once() -> None:
    nodes = Nodes("pulsar://127.0.0.1:1")
    watch = LayoutWatch(nodes, "topic://public/default/orders")  # not started: it raises
    who = Identity(watch.topic, "billing", "one", 1, ScalableConsumerType.STREAM)
    told = asyncio.Event()
    session = ConsumerSession(ConsumerCore(1.0), who, nodes, watch, clock.now, told.set)
    with pytest.raises(ClientError, match="ended by a fault"):
        await session.start(timeout_s=60.0)
    assert told.is_set()
    await session.close(0.1)


async def test_a_commit_is_given_up_before_the_lapse(capfd: pytest.CaptureFixture[str]) -> None:
    with nobody() as servers:
        group = GroupOffsets(
            {"bootstrap.servers": servers, "group.id": "billing"}, session_s=2.0, mark="m"
        )
        try:
            with pytest.raises(KafkaException):
                await asyncio.wait_for(group.commit({("orders", 0): Position(5)}, math.inf), WAIT_S)
        finally:
            await asyncio.to_thread(group.close)
    assert capfd.readouterr().err == ""


async def test_a_commit_after_its_session_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(group_offsets, "Consumer", Slow)
    group = GroupOffsets({}, 2.0, "m", lambda: now)
    commits = [group.commit({("orders", 0): Position(offset)}, until=11.0) for offset in (5, 6)]
    first, queued = await asyncio.gather(*commits, return_exceptions=True)
    assert isinstance(first, KafkaException)
    assert queued == Answers({}, {})
    assert len(asked) == 1
    await asyncio.to_thread(group.close)


async def test_a_topic_that_is_asked_for_while_reading_ends_keeps_nobody_waiting() -> None:
    with nobody() as servers:
        kafka = {"bootstrap.servers": servers, "group.id": "billing"}
        plane = DataPlane(kafka, ReadSettings(), lambda: None, trouble()[0])
        asked = [asyncio.create_task(plane.warm([f"orders-{n}"])) for n in range(3)]
        await asyncio.sleep(0)
        await plane.close()
        with pytest.raises(KafkaException, match="ended"):
            await asyncio.wait_for(plane.warm(["late"]), WAIT_S)
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, KafkaException) for each in told)


def trouble() -> tuple[ReadTrouble, list[str]]:
    told: list[str] = []
    return ReadTrouble(lambda: told.append("failed")), told


async def test_what_kafka_refuses_for_good_is_a_failure_and_what_passes_is_remembered() -> None:
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


async def test_a_question_that_meets_a_client_without_a_token_for_now_is_asked_again() -> None:
    passing, told = trouble()
    passing.note(KafkaError(KafkaError._AUTHENTICATION), "to commit")
    await asyncio.sleep(0)
    assert (passing.failure, told) == (None, [])


async def test_what_often_fails_is_warned_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [50.0]
    passing = ReadTrouble(lambda: None, lambda: now[0])
    down, refused = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError.NOT_COORDINATOR)
    for _ in range(1_000):
        passing.note(down)
        passing.well()  # one of several brokers answers
        now[0] += 0.02
    passing.note(refused, "to commit")
    passing.note(down, "to commit")
    fields = [vars(record)["fields"] for record in caplog.records]
    assert [(each["code"], each.get("times")) for each in fields] == [
        ("_TRANSPORT", None),
        ("_TRANSPORT", 500),
        ("NOT_COORDINATOR", None),
        ("_TRANSPORT", None),
    ]


async def test_a_topic_is_gone_once_it_was_missing_for_long_without_a_break(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    missing = ReadTrouble(lambda: None, lambda: now[0])

    def missed(at: float) -> bool:
        now[0] = at
        missing.missed("orders-0")
        return missing.is_gone("orders-0")

    assert not missed(100.0)
    missing.found("orders-0")
    assert missing.last == ""
    assert [missed(at) for at in (120.0, 149.0, 150.0)] == [False, False, True]
    assert "Kafka has no topic orders-0" in missing.last
    assert missing.failure is None, "it is the trouble of one segment"
    told = [vars(record)["fields"]["kafka_topic"] for record in caplog.records]
    assert told == ["orders-0"], "not while it may be a new one, and once in ten seconds"


async def test_a_topic_that_kafka_lacks_keeps_no_other_topics_commit() -> None:
    asked: list[list[str]] = []

    class Lacking:
        """As librdkafka: when Kafka lacks one topic, it commits the others, and says one error."""

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
            asked.append([each.topic for each in offsets])
            if "b" in asked[-1]:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            return offsets

        def close(self) -> None:
            pass

    with nobody() as servers:
        group = GroupOffsets({"bootstrap.servers": servers, "group.id": "billing"}, 2.0, "m")
        group._client.close()
        group._client = cast("Consumer", Lacking())
        wanted = {("a", 0): 1, ("b", 0): 2, ("b", 1): 3, ("c", 0): 4}
        positions = {place: Position(at) for place, at in wanted.items()}
        found, refused = await group.commit(positions, math.inf)
        await asyncio.to_thread(group.close)
    assert (found, set(refused)) == ({("a", 0): 1, ("c", 0): 4}, {("b", 0), ("b", 1)})
    assert asked == [["a", "b", "b", "c"], ["a"], ["b", "b"], ["c"]]


def test_the_size_of_a_long_batch_is_told_by_some_of_its_messages() -> None:
    def batch(*sizes: int) -> list[Message]:
        return cast("list[Message]", [b"x" * size for size in sizes])

    assert size_of(batch(1, 2, 3), 7) == 6
    long = batch(*(1_000 if number % 4 == 0 else 0 for number in range(2_000)))
    told = [size_of(long, turn) for turn in range(4)]
    assert sum(told) / 4 == 500_000, "no pattern hides the large ones for long"
