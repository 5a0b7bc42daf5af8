"""What a producer gives up, when, and in which words, and how it goes on.

The test plays Kafka, on a clock that stands still.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch import client as sdk
from anabranch.client._producer import settlement
from anabranch.client._producer.batch import PendingMessage
from anabranch.client._producer.dispatcher import _LOOK_S
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import UncoveredHashError
from anabranch.wire.kafka.producing import KafkaCode
from support.opening import Opening
from support.sending_stage import PATIENCE_S, SendingStage, staged
from support.still_watch import layout_of
from support.waiting import until


@pytest.fixture
def stage() -> Opening:
    return Opening(staged)


async def test_a_bucket_that_gets_nowhere_is_given_up_while_others_get_on(
    stage: SendingStage,
) -> None:
    async def answer() -> None:
        while True:
            (await stage.request()).answers(but={0: KafkaCode.REQUEST_TIMED_OUT})

    answering = asyncio.create_task(answer())
    stuck = stage.send(b"stuck", 0)
    for number in range(12):
        stage.send(b"%d" % number, 1)
        await stage.settled(b"%d" % number)
        await stage.pass_s(1)
    answering.cancel()
    error = await stage.error_of(b"stuck")
    assert isinstance(error, sdk.UnknownOutcomeError)
    assert stuck.where in str(error)
    assert "did not acknowledge it in 10 s" in str(error)
    assert "Kafka may have it" in str(error)
    assert all(isinstance(stage.told[b"%d" % each], sdk.DeliveryResult) for each in range(12))


async def test_time_in_which_kafka_throttles_does_not_count_and_is_named(
    stage: SendingStage,
) -> None:
    stage.send(b"tried", 0)
    await stage.request()
    stage.send(b"waits", 1)
    stage.dispatcher.appends.throttled.note(stage.at, 15.0)
    await stage.pass_s(23)
    assert stage.told == {}
    await stage.pass_s(5)
    for value in (b"tried", b"waits"):
        error = str(await stage.error_of(value))
        assert "in 10 s, and Kafka throttled this client for 15 s by a quota" in error
        assert "raise its producer_byte_rate" in error


async def test_time_is_up_for_each_message_by_itself_and_not_before(stage: SendingStage) -> None:
    stage.kafka.no_leaders = ConnectionRefusedError("nobody is there")
    writer = stage.send(b"first")
    await stage.pass_s(5)
    stage.send(b"second")
    await stage.pass_s(4)
    assert stage.told == {}
    await stage.pass_s(3)
    assert list(stage.told) == [b"first"]
    await stage.pass_s(5)
    error = await stage.error_of(b"second")
    assert type(error) is sdk.DeliveryError, "it was never handed to Kafka"
    assert f"to {writer.where} could not be sent in 10 s" in str(error)


@pytest.mark.parametrize("state", ["waits", "tried", "refused", "held"])
async def test_a_message_is_given_up_when_its_time_is_over_and_not_at_its_last_moment(
    stage: SendingStage, state: str
) -> None:
    sender, under_way = stage.dispatcher.sender, stage.dispatcher.under_way
    if state == "held":
        sender.router.close(sender.router.route(stage.key(0)))
    writer = stage.send(b"value")
    if state in ("tried", "refused"):
        request = await stage.request()
        if state == "refused":
            request.answers(KafkaCode.MESSAGE_TOO_LARGE)
            await until(lambda: not writer.open)
    last_moment = stage.at + PATIENCE_S + (_LOOK_S if writer.open else 0.0)
    sender.expire(last_moment, "")
    assert under_way.count == 1
    sender.expire(last_moment + 0.001, "")
    assert under_way.count == 0


async def test_a_batch_is_as_old_as_its_oldest_message(stage: SendingStage) -> None:
    for since, oldest in ((5.0, 5.0), (7.0, 5.0), (3.0, 3.0)):
        stage.dispatcher.sender.send(PendingMessage(b"key", b"value", since=since))
        assert stage.dispatcher.router.route(b"key").waiting_since == oldest


async def test_a_sealed_bucket_is_left_only_after_the_answer_to_what_is_on_its_way(
    stage: SendingStage,
) -> None:
    sender = stage.dispatcher.sender
    stage.send(b"stored")
    (await stage.request()).answers()
    await stage.settled(b"stored")
    writer = stage.send(b"on its way")
    request = await stage.request()
    stage.send(b"waits")
    with sender.barrier() as barrier:
        stage.send(b"later")
        stage.dispatcher.update(stage.split())
        sender.reopen(stage.at + 1_000)
        assert (sender.router.leaving, barrier.left) == ([writer], 2)
        request.answers()
        await stage.settled(b"on its way")
        assert (sender.router.leaving, barrier.left) == ([], 1)


@pytest.mark.parametrize(
    ("in_doubt", "kind"), [(False, sdk.DeliveryError), (True, sdk.UnknownOutcomeError)]
)
async def test_a_message_that_is_refused_though_nobody_seals_fails_and_its_bucket_goes_on(
    stage: SendingStage, in_doubt: bool, kind: type[Exception]
) -> None:
    stage.send(b"large")
    if in_doubt:
        (await stage.request()).answers(KafkaCode.REQUEST_TIMED_OUT)
    first = await stage.request()
    stage.send(b"held")
    first.answers(KafkaCode.MESSAGE_TOO_LARGE)
    await until(lambda: stage.dispatcher.router.leaving != [])
    await stage.pass_s(5)
    stage.send(b"later")
    await stage.pass_s(5)
    assert (stage.told, len(stage.dispatcher.router.leaving)) == ({}, 1)
    await stage.pass_s(2)
    assert type(await stage.error_of(b"large")) is kind
    assert type(await stage.error_of(b"held")) is sdk.DeliveryError
    assert "as too large, but in 10 s no node said" in str(stage.told[b"large"])
    again = (await stage.request()).only
    assert (again.values, again.sequence) == ([b"later"], 0)


async def test_a_segment_that_retires_while_the_producer_starts_is_no_error(
    stage: SendingStage,
) -> None:
    stage.kafka.no_leaders = ConnectionRefusedError("nobody is there")
    starting = asyncio.create_task(stage.dispatcher.start())
    assert await stage.is_quiet()
    assert not starting.done()
    stage.dispatcher.update(stage.split())
    stage.look()
    await starting


async def refuse_in_doubt(stage: SendingStage, value: bytes) -> None:
    """The message was tried without an answer, and refused then; its segment is sealed."""
    stage.send(value)
    (await stage.request()).answers(KafkaCode.REQUEST_TIMED_OUT)
    (await stage.request()).answers(KafkaCode.MESSAGE_TOO_LARGE)
    await until(lambda: stage.dispatcher.router.leaving != [])
    stage.send(b"held")
    stage.kafka.leaders |= {"t1": [1] * 4, "t2": [1] * 4}
    stage.dispatcher.update(stage.split())


@pytest.mark.parametrize("is_stored", [False, True])
async def test_what_is_in_doubt_is_sent_on_if_the_sealed_segment_does_not_have_it(
    stage: SendingStage, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    monkeypatch.setattr(settlement, "ask", lambda *_: is_stored)
    await refuse_in_doubt(stage, b"doubt")
    following = await stage.request()
    assert following.values == ([b"held"] if is_stored else [b"doubt", b"held"])
    following.answers()
    await stage.settled(b"doubt", b"held")
    told = stage.told[b"doubt"]
    assert isinstance(told, sdk.DeliveryResult)
    assert (told.segment_id == 0, told.offset == -1) == (is_stored, is_stored)


async def test_kafka_is_asked_once_what_is_in_doubt_and_its_answer_is_waited_for(
    stage: SendingStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()
    monkeypatch.setattr(stage.dispatcher, "resolve", asked.append)
    await refuse_in_doubt(stage, b"doubt")
    stage.dispatcher.sender.advance()
    await stage.pass_s(100)
    assert (len(asked), b"doubt" in stage.told) == (1, False)


async def test_a_fault_while_doubt_is_settled_fails_what_is_in_doubt_and_the_bucket_goes_on(
    stage: SendingStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> bool:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(settlement, "ask", fault)
    await refuse_in_doubt(stage, b"doubt")
    error = await stage.error_of(b"doubt")
    assert isinstance(error, sdk.UnknownOutcomeError)
    assert "can't start new thread" in str(error)
    assert (await stage.request()).values == [b"held"]
    assert stage.dispatcher.router.leaving == []


async def test_doubt_is_settled_by_whoever_leads_until_time_is_up(
    stage: SendingStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(_writer: object, leader: object, *_: object) -> bool:
        asked.append(leader)
        stage.kafka.leaders["t0"] = [2] * 4
        if len(asked) == 2:
            stage.at += 100.0
        raise ConnectionResetError("gone")

    monkeypatch.setattr(settlement, "ask", ask)
    await refuse_in_doubt(stage, b"doubt")
    error = await stage.error_of(b"doubt")
    assert asked == [("0", 9092), ("2", 9092)]
    assert str(error).count("its leader could not be asked: gone") == 1


async def test_where_no_segment_is_active_messages_fail_with_or_without_a_key(
    stage: SendingStage,
) -> None:
    stage.kafka.no_leaders = ConnectionRefusedError("nobody is there")
    for key in (b"key", None):
        value = b"%r" % key
        stage.dispatcher.take(PendingMessage(key, value, (), 1, stage.told_of(value)))
    stage.dispatcher.update(layout_of(SegmentLayout(2, 1, ()), epoch=2))
    for value in (b"None", b"b'key'"):
        assert "No segment" in str(await stage.error_of(value))
    for key in (b"key", None):
        with pytest.raises(UncoveredHashError):
            stage.dispatcher.take(PendingMessage(key, b"late"))
    assert stage.dispatcher.under_way.count == 0


async def test_a_deleted_topic_leaves_no_message_and_no_writer(stage: SendingStage) -> None:
    stage.send(b"on its way", 0)
    await stage.request()
    stage.send(b"waits", 1)
    stage.dispatcher.update(stage.layout.as_deleted())
    for value in (b"on its way", b"waits"):
        assert isinstance(await stage.error_of(value), sdk.TopicNotFoundError)
    assert (stage.dispatcher.router.writers(), stage.dispatcher.router.routes) == ([], {})
    assert stage.dispatcher.under_way.count == 0


async def test_closing_tells_of_every_message_what_became_of_it(stage: SendingStage) -> None:
    stage.send(b"on its way")
    await stage.request()
    stage.send(b"waits")
    stage.send(b"elsewhere", 1)
    stage.dispatcher.router.close(stage.dispatcher.router.route(stage.key(2)))
    stage.send(b"held", 2)
    await stage.dispatcher.close()
    assert isinstance(stage.told[b"on its way"], sdk.UnknownOutcomeError)
    assert "the producer was closed" in str(stage.told[b"on its way"])
    for value in (b"waits", b"elsewhere", b"held"):
        assert type(stage.told[value]) is sdk.DeliveryError
    assert stage.dispatcher.under_way.count == 0
    assert await stage.is_quiet()


async def test_what_is_sent_to_a_segment_whose_topic_is_gone_fails_at_once_and_no_other() -> None:
    async with staged(segments=2) as stage:
        leaders = stage.kafka.leaders.pop("t0")
        lost = stage.send(b"under way")
        await stage.pass_s(1)
        assert stage.told == {}, "a broker may not know a new topic yet"
        await stage.pass_s(3)
        stage.send(b"later")
        for value in (b"under way", b"later"):
            error = await stage.error_of(value)
            assert type(error) is sdk.SegmentMissingError
            assert "anabranch segments restore" in str(error)
        routed = {stage.dispatcher.router.route(None).segment for _ in range(16)}
        assert routed == {stage.layout.segments[1]}

        stage.kafka.leaders["t0"] = leaders
        await until(lambda: stage.dispatcher.appends.leaders.knows("t0"))
        stage.look()
        assert stage.send(b"restored") is lost
        assert (await stage.request()).values == [b"restored"]
