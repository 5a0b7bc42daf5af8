"""What a share reader takes from Kafka: no more than somebody asks for, and few at first."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message

from anabranch.client import QueueConsumer
from anabranch.client._queue import share_reader
from anabranch.client._queue.messages import ACCEPT, DELAY, REJECT, RELEASE, Delivery
from anabranch.client._queue.pace import Pace
from anabranch.client._queue.share_group import Delivering
from anabranch.client._queue.share_reader import ShareReader, ShareReaders
from support.lone_consumers import ready_queue
from support.still_watch import lone_member
from support.waiting import WAIT_S, until
from support.wire import on_both_loops

_LOCK_S = 0.25
_LONG_S = 1_000.0


class Group:
    """A share group's coordinator and its members: each poll brings two messages."""

    def __init__(self) -> None:
        self.sizes: list[int] = []  # of the members, as they joined
        self.members = 0  # now
        self.given = 0
        self.subscribed: dict[Member, bool] = {}  # to anything
        self.answers: Counter[AcknowledgeType] = Counter()
        self.sent: Counter[AcknowledgeType] = Counter()

    def join(self, settings: dict[str, Any], logger: object) -> Member:
        self.sizes.append(settings["max.poll.records"])
        self.members += 1
        return Member(self)


class Member:
    """Stands for confluent-kafka's ShareConsumer."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def subscribe(self, topics: list[str]) -> None:
        self._group.subscribed[self] = bool(topics)

    def unsubscribe(self) -> None:
        self._group.subscribed[self] = False

    def poll(self, timeout_s: float) -> list[Message]:
        self.commit_async()
        self._group.given += 2
        return [Message(topic="k", partition=0, value=b"x") for _ in range(2)]

    def acknowledge(
        self, message: Message, answer: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        self._group.answers[answer] += 1

    def commit_async(self) -> None:
        self._group.sent = Counter(self._group.answers)

    def close(self) -> None:
        self.commit_async()
        self._group.members -= 1
        self._group.subscribed.pop(self, None)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()
    monkeypatch.setattr(share_reader, "ShareConsumer", made.join)
    return made


@asynccontextmanager
async def reading(
    lock_s: float, messages_max: int = 500
) -> AsyncIterator[tuple[ShareReader, asyncio.Event]]:
    came = asyncio.Event()
    pace = Pace(messages_max)
    reader = ShareReader({}, Delivering(lock_s, 10), pace, came.set, lambda: None)
    reader.subscribe(["k"])
    try:
        yield reader, came
    finally:
        await reader.close(None)


async def received(reader: ShareReader | ShareReaders, came: asyncio.Event) -> Delivery:
    """As a receiver waits for it."""
    while True:
        came.clear()
        if (found := reader.take()) is not None:
            return found
        with reader.receiver():
            await came.wait()


async def test_nothing_is_taken_from_kafka_before_somebody_receives(group: Group) -> None:
    async with reading(_LOCK_S):
        await until(lambda: group.members == 0)  # others have its partitions meanwhile
    assert group.given == 0


async def test_a_delivery_that_nobody_takes_is_released_and_none_polled(group: Group) -> None:
    async with reading(_LOCK_S) as (reader, came):
        assert reader.take() is None  # it does not wait for what it asked for
        await until(lambda: group.given == 2 and group.members == 0)
        await asyncio.sleep(3 * _LOCK_S)
        for _ in range(3):  # nor does who looks in for a moment make Kafka count
            assert reader.take() is None
            reader.subscribe(["k"])  # wakes it
            await asyncio.sleep(0.02)
        assert group.given == group.sent[AcknowledgeType.RELEASE] == 2
        await received(reader, came)
        assert group.given > 2


async def test_one_that_expires_in_work_is_followed_by_none_unasked(group: Group) -> None:
    async with reading(_LOCK_S) as (reader, came):
        delivery = await received(reader, came)
        await until(lambda: delivery.is_over)
        assert not delivery.acknowledge(0, ACCEPT)
        await until(lambda: group.members == 0)
        given = group.given
        await asyncio.sleep(3 * _LOCK_S)
        assert group.given == group.sent[AcknowledgeType.RELEASE] == given
        await received(reader, came)
        assert group.given > given


async def test_answers_are_sent_though_nobody_asks_for_more(group: Group) -> None:
    async with reading(_LONG_S) as (reader, came):
        (await received(reader, came)).acknowledge_open(2, ACCEPT)
        await until(lambda: group.sent[AcknowledgeType.ACCEPT] == 2)
        assert group.given == 2


def test_it_joins_anew_for_more_once_full_deliveries_are_settled_quickly() -> None:
    pace = Pace(6_000)
    assert pace.records == 1
    assert [pace.ended(True, 1, 0.1 * each) for each in range(9)] == [False] * 7 + [True, False]
    assert pace.records == 100
    assert not any(pace.ended(True, 99, 1.0 + 0.1 * each) for each in range(20)), "not full"
    assert [pace.ended(True, 510, 4.0 + 0.1 * each) for each in range(8)] == [False] * 7 + [True]
    assert pace.records == 8 * 510
    assert not any(pace.ended(True, 5_000, 5.0 + 0.1 * each) for each in range(20)), "hardly more"
    assert pace.ended(False, 5_000, 8.0), "it leaves, so that others get what was not settled"
    assert pace.records == 1
    assert not any(pace.ended(True, 1, 9.0 + 0.2 * each) for each in range(50)), "too slow"
    assert pace.records == 1


def test_an_application_that_works_on_many_at_once_is_given_as_many() -> None:
    pace = Pace(500)
    pace.needs(100)
    assert pace.ended(in_time=True, messages=1, now=0.0), "it joins anew to ask for more"
    assert pace.records == 100
    assert not pace.ended(in_time=True, messages=100, now=60.0), "however slow its handlers are"
    assert pace.ended(in_time=False, messages=100, now=120.0)
    assert pace.records == 1, "others get what expired"
    pace.needs(9_000)
    pace.ended(in_time=True, messages=1, now=180.0)
    assert pace.records == 500


def test_the_time_in_which_kafka_is_asked_does_not_make_it_slow() -> None:
    asked, worked_on = Pace(500), Pace(500)
    for each in range(1, 9):
        asked.asked(1.4)
        joined = asked.ended(True, 1, 1.5 * each), worked_on.ended(True, 1, 1.5 * each)
        assert joined == (each == 8, False)
    assert (asked.records, worked_on.records) == (100, 1)


@pytest.mark.parametrize("most", [1, 2, 500])
def test_it_never_asks_for_more_than_it_may(most: int) -> None:
    pace = Pace(most)
    joined = [pace.ended(True, 10_000, 0.01 * each) for each in range(100)]
    assert (pace.records, joined.count(True)) == (most, int(most > 1))


async def delayed(readers: ShareReaders, came: asyncio.Event, delay_s: float) -> None:
    """Takes a delivery, accepts its first message and releases the other one later."""
    found = await received(readers, came)
    found.acknowledge(0, ACCEPT)
    assert found.acknowledge(1, DELAY, time.monotonic() + delay_s)


@asynccontextmanager
async def pooled(lock_s: float) -> AsyncIterator[tuple[ShareReaders, asyncio.Event]]:
    came = asyncio.Event()
    pace = Pace(500)

    def member(on_park: Callable[[], None]) -> ShareReader:
        return ShareReader({}, Delivering(lock_s, 10), pace, came.set, on_park)

    readers = ShareReaders(member, came.set)
    readers.subscribe(["k"])
    try:
        yield readers, came
    finally:
        await readers.close(None)


async def test_what_is_released_later_is_locked_till_then_for_others_to_read(group: Group) -> None:
    async with pooled(_LONG_S) as (readers, came):
        await delayed(readers, came, 0.5)
        await until(lambda: group.sent[AcknowledgeType.ACCEPT] == 1)
        await until(lambda: list(group.subscribed.values())[:1] == [False])
        assert group.sent[AcknowledgeType.RELEASE] == 0
        await until(lambda: group.sent[AcknowledgeType.RELEASE] == 1)


async def test_a_consumer_reads_on_by_another_member_while_one_is_parked(group: Group) -> None:
    async with pooled(_LONG_S) as (readers, came):
        for count in range(1, 4):
            await delayed(readers, came, _LONG_S / 2)
            await until(lambda wanted=count + 1: group.members == wanted)  # type: ignore[misc]
            assert list(group.subscribed.values()).count(True) <= 1
    assert group.answers[AcknowledgeType.RELEASE] == 3, "closing releases what was parked"
    assert group.members == 0


async def test_a_member_that_reads_on_for_one_that_is_parked_keeps_its_pace(group: Group) -> None:
    async with pooled(_LONG_S) as (readers, came):
        while group.sizes[-1] == 1:
            (await received(readers, came)).acknowledge_open(2, ACCEPT)
        await delayed(readers, came, _LONG_S / 2)
        await until(lambda: group.members == 2)
    assert group.sizes == [1, 100, 100]


async def test_when_all_members_are_parked_the_next_delivery_waits_for_one(group: Group) -> None:
    async with pooled(_LONG_S) as (readers, came):
        for _ in range(7):
            await delayed(readers, came, _LONG_S / 2)
        await delayed(readers, came, 0.3)  # the last of eight
        await asyncio.wait_for(delayed(readers, came, 0.0), WAIT_S)
        assert group.members == 8


async def test_a_consumer_reads_on_while_it_is_not_known_what_becomes_of_one(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_reader, "_HELD_S", 0.0)
    async with pooled(_LONG_S) as (readers, came):
        first = await received(readers, came)
        assert first.hold(0)
        assert first.acknowledge(1, REJECT)
        (await received(readers, came)).acknowledge_open(2, RELEASE)
        await until(lambda: group.sent[AcknowledgeType.RELEASE] == 2)
        assert group.sent[AcknowledgeType.ACCEPT] == 0
        assert first.acknowledge_held(0, ACCEPT)
        await until(lambda: group.sent[AcknowledgeType.ACCEPT] == 1)
        second = await received(readers, came)
        assert second.hold(0)
        assert second.hold(1)
        await until(lambda: group.members == 2)
    assert group.answers[AcknowledgeType.RELEASE] == 4, "closing releases what is held"
    assert not second.acknowledge_held(0, ACCEPT)


async def test_what_is_held_is_released_before_its_lock_is_over(group: Group) -> None:
    async with pooled(_LOCK_S) as (readers, came):
        found = await received(readers, came)
        assert found.hold(0)
        assert found.acknowledge(1, ACCEPT)
        await until(lambda: group.sent[AcknowledgeType.RELEASE] == 1)
        assert not found.acknowledge_held(0, ACCEPT)


async def test_a_delivery_that_ends_is_released_whatever_was_delayed(group: Group) -> None:
    async with reading(_LOCK_S) as (reader, came):
        found = await received(reader, came)
        assert found.acknowledge(0, DELAY, time.monotonic() + 0.05)
        assert found.hold_until < time.monotonic() + _LOCK_S
        await until(lambda: group.sent[AcknowledgeType.RELEASE] == 2)
        assert not found.acknowledge(1, DELAY)


def delivery(name: bytes) -> Delivery:
    return Delivery([Message(topic="k", partition=0, value=name) for _ in range(3)], {"k": 3}, 3)


def consumer(*deliveries: Delivery) -> QueueConsumer:
    return ready_queue(lone_member("jobs"), *deliveries)


@on_both_loops
async def test_what_was_released_already_is_not_given_out() -> None:
    first = delivery(b"first")
    queue = consumer(first, delivery(b"second"))
    assert (await queue.receive(10)).value == b"first"
    first.end()
    assert (await queue.receive(10)).value == b"second"
