"""Dead letters of a queue: kept before they are acknowledged, with what is known of them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from confluent_kafka import Message as KafkaMessage

from anabranch.client import (
    ClosedError,
    DeadLetter,
    DeadLetterError,
    DeadLetterPolicy,
    DeadLetterReason,
    DeliveryError,
    LayoutWatch,
    Message,
    MessageTooLargeError,
    Producer,
    QueueConsumer,
    QueueMessage,
    QueueSettings,
    TopicLayout,
)
from anabranch.client._consumer.assignment import Assignment
from anabranch.client._consumer.consumer import Membership
from anabranch.client._queue.dead_letters import limit_of
from anabranch.client._queue.messages import ACCEPT, DELAY, REJECT, RELEASE, Delivery
from anabranch.client._queue.share_group import Delivering
from anabranch.client._queue.share_reader import ShareReaders
from anabranch.client._topics.nodes import Nodes
from anabranch.core.errors import InvalidInputError
from support.waiting import until

ASIDE = "topic://public/default/orders-jobs-DLQ"


class Given(KafkaMessage):
    """A message of a share group that was given out so often."""

    def __init__(self, value: bytes, offset: int, count: int, **fields: Any) -> None:
        super().__init__(topic="k", partition=0, value=value, offset=offset, **fields)
        self.count = count

    def delivery_count(self) -> int:
        return self.count


class Aside:
    """Stands for the producer of the dead letters' topic."""

    is_closed = False

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]] = []
        self.failure: Exception | None = None
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.bytes_max = math.inf

    async def send(self, value: bytes, key: bytes | None, *, headers: Any) -> None:
        await self.may_send.wait()
        if self.failure is not None:
            raise self.failure
        pairs = [(n, c if isinstance(c, bytes) else c.encode()) for n, c in headers]
        if sum(len(content) for _, content in pairs) > self.bytes_max:
            raise MessageTooLargeError("too large")
        self.sent.append((value, key, pairs))

    async def abandon(self) -> None:
        pass

    def letter(self, index: int = 0) -> DeadLetter:
        value, key, headers = self.sent[index]
        pairs: Any = headers
        raw = KafkaMessage(topic="d", partition=0, value=value, key=key, headers=pairs, offset=0)
        found = DeadLetter.of(Message(raw, cast("Any", None)))
        assert found is not None
        return found


class Ready:
    """Stands for readers with one delivery."""

    failure = None
    last_trouble = ""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery | None = delivery

    def take(self) -> Delivery | None:
        found, self._delivery = self._delivery, None
        return found

    def receiver(self) -> Any:
        return asyncio.timeout(None)

    async def close(self, current: Delivery | None) -> bool:
        return True


class Scene:
    """A consumer of a queue with a policy, and one delivery of messages."""

    def __init__(self, *counts: int, policy: int = 3, kafka: int = 10) -> None:
        self.aside = Aside()
        nodes = Nodes("pulsar://127.0.0.1:1")
        watch = LayoutWatch(nodes, "topic://public/default/orders")

        async def produce(topic: str, _: object) -> Producer:
            assert topic == ASIDE
            return cast("Producer", self.aside)

        member = Membership(nodes, watch, {}, "jobs", "one", produce)
        self.consumer = QueueConsumer(member, QueueSettings())
        messages: list[Any] = [
            Given(b"%d" % n, n, count, key=b"k", headers=[("h", b"x"), ("ab", b"p")])
            for n, count in enumerate(counts)
        ]
        self.delivery = Delivery(messages, {"k": len(messages)}, 3)
        made = self.consumer
        made._reader = cast("ShareReaders", Ready(self.delivery))
        made._sources = {"k": (7, {})}
        made._delivering = Delivering(30.0, kafka)
        watch._layout = TopicLayout("public/default/orders", incarnation=1, epoch=1, segments={})
        dead = DeadLetterPolicy(deliveries_max=policy, topic=ASIDE) if policy else None
        made._core.assignment = Assignment(1, 1, 1, "group", 10.0, dead_letter=dead)

    async def take(self) -> QueueMessage:
        return await self.consumer.receive(10)

    def answers(self) -> list[int]:
        return list(self.delivery.end()[0])


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        await test()

    asyncio.run(body())


def test_a_message_that_was_delivered_too_often_is_kept_aside_and_given_to_nobody() -> None:
    async def test() -> None:
        scene = Scene(1, 4, 3)
        batch = await scene.consumer.receive_many(10)
        assert batch.values() == [b"0", b"2"]
        assert scene.consumer.acknowledge_all()
        await until(lambda: scene.delivery.wait(0))
        assert scene.answers() == [ACCEPT, ACCEPT, ACCEPT]
        assert [value for value, _, _ in scene.aside.sent] == [b"1"]
        letter = scene.aside.letter()
        assert (letter.topic, letter.subscription) == ("topic://public/default/orders", "jobs")
        assert (letter.segment_id, letter.bucket, letter.offset, letter.deliveries) == (7, 0, 1, 4)
        assert (letter.reason, letter.error) == (DeadLetterReason.DELIVERIES, "")

    run(test)


def test_the_last_release_puts_a_message_aside_with_the_errors_that_were_told() -> None:
    async def test() -> None:
        scene = Scene(2, 3)
        first, last = await scene.take(), await scene.take()
        assert scene.consumer.release(first, error="not yet")
        assert scene.consumer.release(last, error=ValueError("no such order"))
        await until(lambda: scene.delivery.wait(0))
        assert scene.answers() == [RELEASE, ACCEPT]
        letter = scene.aside.letter()
        assert letter.error == "ValueError: no such order"
        assert [each.delivery for each in letter.attempts] == [3]
        value, key, pairs = scene.aside.sent[0]
        assert (value, key, pairs[0]) == (b"1", b"k", ("h", b"x"))
        assert "ab" not in dict(pairs)

    run(test)


def test_a_rejected_message_is_put_aside_at_once() -> None:
    async def test() -> None:
        scene = Scene(1)
        message = await scene.take()
        assert scene.consumer.reject(message, error="it is no order")
        assert scene.consumer.acknowledge(message), "what is put aside stays so"
        await until(lambda: scene.delivery.wait(0))
        letter = scene.aside.letter()
        assert (letter.reason, letter.error) == (DeadLetterReason.REJECTED, "it is no order")
        assert len(scene.aside.sent) == 1

    run(test)


def test_without_a_policy_a_rejected_message_goes_to_nobody() -> None:
    async def test() -> None:
        scene = Scene(1, 9, policy=0)
        first, second = await scene.take(), await scene.take()
        assert scene.consumer.reject(first, error="no")
        assert scene.consumer.release(second)
        assert scene.answers() == [REJECT, RELEASE]
        assert scene.aside.sent == []

    run(test)


def test_it_is_acknowledged_only_when_it_is_kept() -> None:
    async def test() -> None:
        scene = Scene(4)
        scene.aside.may_send.clear()
        receiving = asyncio.create_task(scene.take())
        await until(lambda: len(scene.consumer._dead_letters._tasks) == 1)
        assert not scene.delivery.wait(0)
        scene.aside.may_send.set()
        await until(lambda: scene.delivery.wait(0))
        assert scene.answers() == [ACCEPT]
        receiving.cancel()

    run(test)


def test_what_cannot_be_kept_stops_the_consumer_and_is_released(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        scene = Scene(4, 1)
        scene.aside.failure = DeliveryError("Kafka is away")
        await scene.take()
        await until(lambda: scene.consumer._failure is not None)
        with pytest.raises(DeadLetterError, match=r"Kafka is away.*mend that topic"):
            await scene.take()
        assert scene.answers() == [RELEASE, RELEASE]
        await scene.consumer.close()

    with caplog.at_level(logging.ERROR, "anabranch.client"):
        run(test)
    assert "consumer.dead_letter_failed" in caplog.text


def test_a_message_that_is_too_large_with_its_history_is_kept_without() -> None:
    async def test() -> None:
        scene = Scene(3)
        scene.aside.bytes_max = 200
        assert scene.consumer.release(await scene.take(), error="x" * 1_000)
        await until(lambda: scene.delivery.wait(0))
        assert (scene.aside.letter().deliveries, scene.aside.letter().attempts) == (3, ())

    run(test)


@pytest.mark.parametrize(
    ("ours", "kafkas", "limit"), [(5, 10, 5), (9, 10, 9), (9, 5, 4), (3, 2, 1), (1, 1, 1)]
)
def test_the_limit_is_below_the_one_at_which_kafka_discards(
    ours: int, kafkas: int, limit: int
) -> None:
    assert limit_of(ours, kafkas) == limit
    assert limit_of(ours, kafkas) < max(2, kafkas)


def test_a_message_is_released_after_a_delay_that_the_lock_allows() -> None:
    async def test() -> None:
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

    run(test)


def test_what_is_being_kept_when_the_consumer_closes_is_waited_for() -> None:
    async def test() -> None:
        scene = Scene(4, 1)
        scene.aside.may_send.clear()
        await scene.take()
        closing = asyncio.create_task(scene.consumer.close())
        await asyncio.sleep(0)
        scene.aside.may_send.set()
        await closing
        assert scene.answers()[0] == ACCEPT
        with pytest.raises(ClosedError):
            await scene.take()

    run(test)


def test_what_is_no_dead_letter_says_nothing() -> None:
    headers: Any
    for headers in ([], [("anabranch-dead-letter-topic", b"t")]):
        raw = KafkaMessage(topic="d", partition=0, value=b"", headers=headers, offset=0)
        assert DeadLetter.of(Message(raw, cast("Any", None))) is None
    spoilt: Any = [
        (f"anabranch-dead-letter-{name}", b"\xff")
        for name in (
            *("topic", "subscription", "segment", "bucket", "offset", "deliveries", "reason"),
        )
    ]
    raw = KafkaMessage(topic="d", partition=0, value=b"", headers=spoilt, offset=0)
    assert DeadLetter.of(Message(raw, cast("Any", None))) is None
