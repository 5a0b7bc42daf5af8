"""The SDK's ordered consumers on real nodes and a real Kafka."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

import pytest

from anabranch.client import (
    Checkpoint,
    CheckpointConsumer,
    Client,
    ClosedError,
    ConsumerBusyError,
    DeadlineError,
    DeserializationError,
    NodesUnreachableError,
    StreamConsumer,
    SubscriptionError,
    TopicNotFoundError,
)
from anabranch.client._consumer.stream import OrderedConsumer
from anabranch.core.errors import InvalidInputError
from support.topic_cluster import Body, TopicCluster, run_on

pytestmark = pytest.mark.integration

_KEYS = 40
_WAIT_S = 40.0


def run(cluster: TopicCluster, body: Body, segments: int = 2) -> None:
    async def named(cluster: TopicCluster, client: Client, topic: str) -> None:
        await body(cluster, client, f"topic://{topic}")

    run_on(cluster, named, segments)


class Sent:
    """Numbered messages of all keys: each value says its key and its place among that key's."""

    def __init__(self, client: Client, topic: str) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._client = client
        self._topic = topic

    async def send(self, rounds: int, pause_s: float = 0.0) -> None:
        producer = await self._client.create_producer(self._topic)
        for _ in range(rounds):
            for number in range(_KEYS):
                key = f"k{number}"
                await producer.post(f"{key}:{self.counts[key]}".encode(), key)
                self.counts[key] += 1
            await asyncio.sleep(pause_s)
        await producer.close()

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Log:
    """What consumers received, per key, in the order of each."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.total = 0

    def add(self, value: bytes) -> None:
        key, _, number = value.decode().partition(":")
        self.by_key[key].append(int(number))
        self.total += 1

    def assert_complete(self, sent: Sent) -> None:
        assert self.by_key == {key: list(range(count)) for key, count in sent.counts.items()}


async def drain(consumer: StreamConsumer, log: Log, until: Callable[[], bool]) -> None:
    """Receives and acknowledges until then, or until the consumer is closed."""
    while not until():
        try:
            batch = await consumer.receive_many(timeout_s=0.2)
        except DeadlineError:
            continue
        except ClosedError:
            return
        for value in batch.values():
            log.add(value)
        consumer.acknowledge(batch)


async def await_that(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def served(consumers: list[OrderedConsumer], total: int) -> None:
    """Returns once these consumers serve so many buckets together."""
    await await_that(lambda: sum(len(each.buckets) for each in consumers) == total)


def test_a_consumer_receives_keys_in_order_with_all_that_was_sent(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        producer = await client.create_producer(topic)
        headers = [("a", b"1"), ("b", b"2")]
        then = round(time.time() * 1_000) - 60_000
        sent = await producer.send(b"value", key="key", headers=headers, event_time_ms=then)
        async with await client.subscribe(topic, "billing") as consumer:
            message = await consumer.receive(_WAIT_S)
            assert (message.key, message.value, message.event_time_ms) == (b"key", b"value", then)
            assert message.headers == headers
            assert (message.segment_id, message.bucket) == (sent.segment_id, sent.bucket)
            assert (f"topic://{message.topic}", message.offset) == (topic, sent.offset)
            assert consumer.acknowledge(message)
            with pytest.raises(DeadlineError):
                await consumer.receive(0.05)

    run(cluster, body)


def test_what_is_acknowledged_is_not_delivered_again_and_the_rest_is(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        sent = Sent(client, topic)
        await sent.send(10)
        first = await client.subscribe(topic, "billing", "one")
        seen = [await first.receive(_WAIT_S) for _ in range(100)]
        kept = [message.value for message in seen[:50]]
        for message in seen[:50]:
            first.acknowledge(message)
        await first.close()
        assert not first.acknowledge(seen[-1])
        log = Log()
        async with await client.subscribe(topic, "billing", "two") as second:
            await drain(second, log, lambda: log.total >= sent.total - len(kept))
            assert log.total == sent.total - len(kept)
            for value in kept:
                key, _, number = value.decode().partition(":")
                assert int(number) not in log.by_key[key]

    run(cluster, body)


def test_consumers_share_the_buckets_and_whoever_leaves_gives_its_share_away_at_once(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        sent, log = Sent(client, topic), Log()
        sending = asyncio.create_task(sent.send(200, 0.005))
        one = await client.subscribe(topic, "billing", "one")
        tasks = [asyncio.create_task(drain(one, log, lambda: False))]
        await served([one], 4)
        two = await client.subscribe(topic, "billing", "two")
        tasks.append(asyncio.create_task(drain(two, log, lambda: False)))
        await await_that(lambda: len(one.buckets) == len(two.buckets) == 2)
        assert not set(one.buckets) & set(two.buckets)
        three = await client.subscribe(topic, "billing", "three")
        tasks.append(asyncio.create_task(drain(three, log, lambda: False)))
        await await_that(lambda: len(three.buckets) >= 1)
        await one.close()
        await served([two, three], 4)
        await two.close()
        await served([three], 4)
        await sending
        await await_that(lambda: log.total >= sent.total)
        await three.close()
        await asyncio.gather(*tasks)
        log.assert_complete(sent)

    run(cluster, body)


def test_keys_stay_in_order_and_complete_while_segments_split_and_merge_under_load(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        sent, log = Sent(client, topic), Log()
        name = topic.removeprefix("topic://")
        sending = asyncio.create_task(sent.send(400, 0.005))
        consumers = [await client.subscribe(topic, "billing", each) for each in ("one", "two")]
        tasks = [asyncio.create_task(drain(each, log, lambda: False)) for each in consumers]
        for _ in range(3):
            await cluster.split_any(name)
            await cluster.merge_last(name)
        await sending
        await await_that(lambda: log.total >= sent.total)
        for each in consumers:
            await each.close()
        await asyncio.gather(*tasks)
        log.assert_complete(sent)

    run(cluster, body, segments=1)


def test_a_bucket_in_flight_waits_for_its_consumer_before_another_gets_it(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await Sent(client, topic).send(5)
        one = await client.subscribe(topic, "billing", "one")
        seen: list[bytes] = []
        batches = []
        while len(seen) < 5 * _KEYS:
            batches.append(await one.receive_many(timeout_s=_WAIT_S))
            seen += batches[-1].values()
        two = await client.subscribe(topic, "billing", "two")
        await await_that(lambda: len(one.buckets) == 2)  # no more of the others is delivered ...
        with pytest.raises(DeadlineError):
            await two.receive(0.3)  # ... and nobody gets them yet
        assert two.buckets == []
        for batch in batches:
            assert one.acknowledge(batch)
        await served([one, two], 4)
        with pytest.raises(DeadlineError):
            await two.receive(0.3)

    run(cluster, body)


def test_a_bucket_goes_when_its_time_is_over_and_what_was_in_flight_comes_again(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await Sent(client, topic).send(5)
        one = await client.subscribe(topic, "billing", "one", settle_timeout_s=0.3)
        seen = [await one.receive(_WAIT_S) for _ in range(5 * _KEYS)]
        two = await client.subscribe(topic, "billing", "two")
        await served([one, two], 4)
        again = [await two.receive(_WAIT_S) for _ in range(20)]
        moved = set(two.buckets)
        assert {(m.segment_id, m.bucket) for m in again} <= moved
        gone = [m for m in seen if (m.segment_id, m.bucket) in moved]
        assert not one.acknowledge(gone[-1])

    run(cluster, body)


def test_checkpoints_resume_where_they_were_saved(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        sent, log = Sent(client, topic), Log()
        name = topic.removeprefix("topic://")
        await sent.send(20)
        one = await client.subscribe_checkpoint(topic, "connector", "one")
        for _ in range(300):
            log.add((await one.receive(_WAIT_S)).value)
        stored = one.checkpoint().to_json()
        for _ in range(100):
            await one.receive(_WAIT_S)  # lost in a crash, as far as the store knows
        await one.close()
        await cluster.split(name, 0)
        await sent.send(20)
        two = await client.subscribe_checkpoint(
            topic, "connector", "two", checkpoint=Checkpoint.from_json(stored)
        )
        await finish(two, log, sent.total)
        log.assert_complete(sent)
        await two.close()

    async def finish(consumer: CheckpointConsumer, log: Log, total: int) -> None:
        while log.total < total:
            for value in (await consumer.receive_many(timeout_s=_WAIT_S)).values():
                log.add(value)
            assert consumer.saved(consumer.checkpoint())

    run(cluster, body)


def test_children_wait_until_a_checkpoint_of_all_of_their_parent_is_saved(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        sent = Sent(client, topic)
        await sent.send(1)
        consumer = await client.subscribe_checkpoint(topic, "connector", "one")
        for _ in range(_KEYS):
            await consumer.receive(_WAIT_S)
        await cluster.split(topic.removeprefix("topic://"), 0)
        await sent.send(1)
        with pytest.raises(DeadlineError):
            await consumer.receive(0.3)
        assert consumer.saved(consumer.checkpoint())
        assert {(await consumer.receive(_WAIT_S)).segment_id for _ in range(_KEYS)} == {1, 2}

    run(cluster, body, segments=1)


def test_positions_of_buckets_that_come_later_are_asked_for(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await Sent(client, topic).send(5)
        asked: list[tuple[int, int]] = []

        async def position_of(segment_id: int, bucket: int) -> int | None:
            asked.append((segment_id, bucket))
            return 3 if segment_id == 1 else None

        async with await client.subscribe_checkpoint(
            topic, "connector", position_of=position_of
        ) as consumer:
            first: dict[tuple[int, int], int] = {}
            for _ in range(5 * _KEYS - 6):
                message = await consumer.receive(_WAIT_S)
                first.setdefault((message.segment_id, message.bucket), message.offset)
            assert first == {(0, 0): 0, (0, 1): 0, (1, 0): 3, (1, 1): 3}
        assert sorted(asked) == [(0, 0), (0, 1), (1, 0), (1, 1)]

    run(cluster, body)


def test_bad_input_gets_errors_of_its_own(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        with pytest.raises(TopicNotFoundError):
            await client.subscribe("topic://public/default/nothing", "billing")
        with pytest.raises(InvalidInputError):
            await client.subscribe(topic, "a/b")
        with pytest.raises(InvalidInputError):
            await client.subscribe(topic, "billing", "a/b")
        with pytest.raises(InvalidInputError, match="no setting speed"):
            await client.subscribe(topic, "billing", speed=1)  # type: ignore[call-arg]
        consumer = await client.subscribe(topic, "billing", "one")
        with pytest.raises(ConsumerBusyError):
            await client.subscribe(topic, "billing", "one")
        with pytest.raises(SubscriptionError):
            await client.subscribe_checkpoint(topic, "billing", "two")
        await served([consumer], 4)
        with pytest.raises(InvalidInputError):
            Checkpoint.from_json("[]")

    run(cluster, body)


def test_a_refused_subscribe_leaves_no_task_behind(cluster: TopicCluster) -> None:
    def tasks() -> list[str]:
        return sorted(str(task.get_coro()).partition(" at ")[0] for task in asyncio.all_tasks())

    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await client.subscribe(topic, "billing", "one")
        before = tasks()
        with pytest.raises(ConsumerBusyError):
            await client.subscribe(topic, "billing", "one")
        with pytest.raises(SubscriptionError):
            await client.subscribe_checkpoint(topic, "billing", "two")
        with pytest.raises(SubscriptionError):
            await client.subscribe_queue(topic, "billing", "two")
        with pytest.raises(InvalidInputError):
            await client.subscribe(topic, "a/b")
        with pytest.raises(TopicNotFoundError):
            await client.subscribe("topic://public/default/nothing", "billing")
        with pytest.raises(NodesUnreachableError):
            await client.subscribe(topic, "billing", "one", subscribe_timeout_s=0.0)
        await await_that(lambda: tasks() == before)

    run(cluster, body)


def test_consumers_of_a_topic_that_is_deleted_say_so(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        consumer = await client.subscribe(topic, "billing")
        queue = await client.subscribe_queue(topic, "jobs")
        await served([consumer], 4)
        await cluster.call("DELETE", topic.removeprefix("topic://"))
        with pytest.raises(TopicNotFoundError):
            await consumer.receive(_WAIT_S)
        with pytest.raises(TopicNotFoundError):
            await queue.receive(_WAIT_S)

    run(cluster, body)


def test_a_value_that_a_deserializer_refuses_stops_nothing_else(cluster: TopicCluster) -> None:
    def number(data: bytes, _: object) -> int:
        return int(data)

    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        producer = await client.create_producer(topic)
        for value in (b"1", b"two", b"3"):
            await producer.send(value, key="k")
        async with await client.subscribe(topic, "billing", value_deserializer=number) as consumer:
            assert (await consumer.receive(_WAIT_S)).value == 1
            refused = await consumer.receive(_WAIT_S)
            with pytest.raises(DeserializationError):
                _ = refused.value
            assert consumer.acknowledge(refused)
            assert (await consumer.receive(_WAIT_S)).value == 3

    run(cluster, body)
