"""Dead letters of a queue: kept before they are acknowledged, with what is known of them."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, cast

import pytest
from confluent_kafka import Message as KafkaMessage

from anabranch import client as sdk
from anabranch.client._consumer.assignment import Assignment
from anabranch.client._queue import dead_letters
from anabranch.client._queue.messages import ACCEPT, DELAY, HELD, REJECT, RELEASE, Delivery
from anabranch.client._queue.share_group import Delivering
from anabranch.core.errors import InvalidInputError
from support.aside import Aside
from support.given import Given
from support.lone_consumers import ready_queue
from support.still_watch import lone_member
from support.waiting import until

ASIDE = "topic://public/default/orders-jobs-DLQ"
AWAY = sdk.DeliveryError("Kafka is away")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again without a pause, and nobody waits for it at the end."""
    monkeypatch.setattr(dead_letters, "_AGAIN_S", 0.0)
    monkeypatch.setattr(dead_letters, "_CLOSE_S_MAX", 0.2)


class Scene:
    """A consumer of a queue with a policy, and one delivery of messages."""

    def __init__(
        self, *counts: int, policy: int = 3, kafka: int = 10, hold_s: float = math.inf
    ) -> None:
        self.aside = Aside()
        self.producers = 0

        async def produce(topic: str, _: object) -> sdk.Producer:
            assert topic == ASIDE
            self.producers += 1
            return cast("sdk.Producer", self.aside)

        messages: list[Any] = [
            Given(b"%d" % n, n, count, key=b"k", headers=[("h", b"x"), ("no", None)])
            for n, count in enumerate(counts)
        ]
        until = time.monotonic() + hold_s
        self.delivery = Delivery(messages, {"k": len(messages)}, 3, until)
        made = ready_queue(lone_member("jobs", "one"), self.delivery, produce=produce)
        made._delivering = Delivering(30.0, kafka)
        dead = sdk.DeadLetterPolicy(deliveries_max=policy, topic=ASIDE) if policy else None
        self.consumer = made
        made._core.assignment = Assignment(1, 1, 1, "group", 10.0, dead_letter=dead)

    async def take(self) -> sdk.QueueMessage:
        return await self.consumer.receive(10)

    def is_settled(self) -> bool:
        return self.delivery._open == self.delivery._held == 0

    def answers(self) -> list[int]:
        return list(self.delivery.end()[0])


async def test_a_message_that_was_delivered_too_often_is_kept_aside_and_given_to_nobody() -> None:
    scene = Scene(1, 4, 3)
    batch = await scene.consumer.receive_many(10)
    assert batch.values() == [b"0", b"2"]
    assert scene.consumer.acknowledge_all()
    await until(scene.is_settled)
    assert scene.answers() == [ACCEPT, ACCEPT, ACCEPT]
    assert [value for value, _, _ in scene.aside.sent] == [b"1"]
    letter = scene.aside.letter()
    assert (letter.topic, letter.subscription) == ("topic://public/default/orders", "jobs")
    assert (letter.segment_id, letter.bucket, letter.offset, letter.deliveries) == (7, 0, 1, 4)
    assert (letter.reason, letter.error) == (sdk.DeadLetterReason.DELIVERIES, "")


async def test_the_last_release_puts_a_message_aside_with_the_errors_that_were_told() -> None:
    scene = Scene(2, 3)
    first, last = await scene.take(), await scene.take()
    assert scene.consumer.release(first, error="not yet")
    assert scene.consumer.release(last, error=ValueError("no such order"))
    await until(scene.is_settled)
    assert scene.answers() == [RELEASE, ACCEPT]
    letter = scene.aside.letter()
    assert letter.error == "ValueError: no such order"
    value, key, pairs = scene.aside.sent[0]
    assert (value, key, pairs[:2]) == (b"1", b"k", [("h", b"x"), ("no", None)])


async def test_a_rejected_message_is_put_aside_at_once() -> None:
    scene = Scene(1)
    message = await scene.take()
    assert scene.consumer.reject(message, error="it is no order")
    assert scene.consumer.acknowledge(message), "what is put aside stays so"
    await until(scene.is_settled)
    letter = scene.aside.letter()
    assert (letter.reason, letter.error) == (sdk.DeadLetterReason.REJECTED, "it is no order")
    assert len(scene.aside.sent) == 1


async def test_without_a_policy_a_rejected_message_goes_to_nobody() -> None:
    scene = Scene(1, 9, policy=0)
    first, second = await scene.take(), await scene.take()
    assert scene.consumer.reject(first, error="no")
    assert scene.consumer.release(second)
    assert (scene.answers(), scene.aside.sent) == ([REJECT, RELEASE], [])


async def test_what_cannot_be_kept_is_tried_again_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(4, 1, 1)
    scene.aside.failure = AWAY
    assert scene.consumer.acknowledge(await scene.take())
    await until(lambda: scene.consumer.dead_letters_waiting == 1)
    assert scene.consumer.acknowledge(await scene.take())
    assert scene.answers() == [HELD, ACCEPT, ACCEPT], "others wait for nothing"
    scene.aside.failure = None
    assert await asyncio.to_thread(scene.delivery.freed) == [(0, ACCEPT)]
    assert (scene.aside.letter().offset, scene.consumer.dead_letters_waiting) == (0, 0)
    assert scene.producers > 1, "the topic may have been deleted and made again"
    assert "consumer.dead_letter_failed" in caplog.text
    assert "Kafka is away" in caplog.text


@pytest.mark.parametrize(("counts", "answer"), [((3, 1), RELEASE), ((10, 1), ACCEPT)])
async def test_others_get_what_cannot_be_kept_but_after_the_last_delivery_it_is_tried_on(
    counts: tuple[int, ...], answer: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(*counts, policy=9, hold_s=0.1)
    scene.aside.failure = AWAY
    first = await scene.take() if answer == RELEASE else None
    if first is not None:
        assert scene.consumer.reject(first, error="it is no order")
    assert scene.consumer.acknowledge(await scene.take())
    assert scene.answers() == [HELD, ACCEPT]
    assert await asyncio.to_thread(scene.delivery.freed) == [(0, RELEASE)]
    letters = scene.consumer._dead_letters
    if first is not None:
        await until(lambda: not letters._tasks)
        assert list(letters._errors.values()) == ["it is no order"]
    scene.aside.failure = None
    await until(lambda: not letters._tasks)
    assert len(scene.aside.sent) == (answer == ACCEPT)
    assert "message_discarded" not in caplog.text


@pytest.mark.parametrize("room", [0, 1])
async def test_a_message_that_only_this_consumer_has_is_told_of_when_it_gives_it_up(
    room: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "_LONE_BYTES_MAX", room)
    scene = Scene(10, 1, hold_s=0.1)
    scene.aside.failure = AWAY
    await scene.take()
    await until(lambda: scene.consumer.dead_letters_waiting == 1)
    if room == 0:
        await until(lambda: "consumer.message_discarded" in caplog.text)
    await scene.consumer.close()
    assert caplog.text.count("consumer.message_discarded") == 1


async def test_a_letter_that_is_too_large_loses_its_error_first() -> None:
    scene = Scene(3)
    scene.aside.bytes_max = 300
    assert scene.consumer.release(await scene.take(), error="x" * 400)
    await until(scene.is_settled)
    assert (scene.aside.letter().error, scene.aside.letter().deliveries) == ("", 3)


async def test_a_letter_that_is_too_large_loses_what_was_added_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(3)
    scene.aside.bytes_max = 0
    assert scene.consumer.release(await scene.take(), error="x")
    await until(scene.is_settled)
    assert scene.aside.sent == [(b"0", b"k", [("h", b"x"), ("no", None)])]
    assert "consumer.dead_letter_bare" in caplog.text
    assert scene.producers == 1


async def test_a_message_is_released_after_a_delay_that_the_lock_allows() -> None:
    scene = Scene(1, 1)
    first, second = await scene.take(), await scene.take()
    assert scene.consumer.release(first, delay_s=20.0)
    for wrong in (-1.0, 24.1, math.inf, math.nan, True, "5"):
        with pytest.raises(InvalidInputError, match="delay_s is 0 to 24"):
            scene.consumer.release(second, delay_s=wrong)  # type: ignore[arg-type]
    assert scene.consumer.acknowledge(second)
    answers, due = scene.delivery.end()
    assert (list(answers), list(due)) == ([DELAY, ACCEPT], [0])
    assert not scene.consumer.release(first, delay_s=1.0)


async def test_what_is_being_kept_when_the_consumer_closes_is_waited_for() -> None:
    scene = Scene(4, 1)
    scene.aside.may_send.clear()
    await scene.take()
    closing = asyncio.create_task(scene.consumer.close())
    await asyncio.sleep(0)
    scene.aside.may_send.set()
    await closing
    assert scene.answers()[0] == ACCEPT
    with pytest.raises(sdk.ClosedError):
        await scene.take()


def test_what_is_no_dead_letter_says_nothing() -> None:
    headers: Any
    for headers in ([], [("anabranch-dead-letter-topic", b"t")]):
        raw = KafkaMessage(topic="d", partition=0, value=b"", headers=headers, offset=0)
        assert sdk.DeadLetter.of(sdk.Message(raw, cast("Any", None))) is None
    spoilt: Any = [
        (f"anabranch-dead-letter-{name}", b"\xff")
        for name in (
            *("topic", "subscription", "segment", "bucket", "offset", "deliveries", "reason"),
        )
    ]
    raw = KafkaMessage(topic="d", partition=0, value=b"", headers=spoilt, offset=0)
    assert sdk.DeadLetter.of(sdk.Message(raw, cast("Any", None))) is None
