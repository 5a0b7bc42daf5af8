"""What a producer gives up and when, and what it rests: on a clock of the test's, without Kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch import client as sdk
from anabranch.client._producer import segment_writer, settlement
from anabranch.client._producer.dispatcher import Dispatcher
from anabranch.client._producer.kafka_writer import KafkaPartitionWriter
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._producer.throttled import Throttled
from anabranch.core.errors import UncoveredHashError
from anabranch.core.topics.layout import SegmentLayout
from support.nobody import nobody
from support.opening import Opening
from support.still_watch import layout_of
from support.waiting import until

_PATIENCE_S = 10.0


class Stage:
    """A dispatcher on a clock that stands still; `told` has what became of which value."""

    def __init__(self, servers: str, segments: int = 1, brokers: int = 1) -> None:
        self.at = 1_000.0
        self.servers = servers
        self.told: dict[bytes, sdk.DeliveryResult | Exception | None] = {}
        self.layout = layout_of(SegmentLayout.initial(segments, 4 * segments), servers)
        settings = sdk.ProducerSettings(delivery_timeout_s=_PATIENCE_S)
        self.dispatcher = Dispatcher(self.layout, settings, {}, lambda: self.at)
        self.dispatcher.writers.brokers = brokers

    def send(self, value: bytes, key: bytes) -> KafkaPartitionWriter:
        partition = self.dispatcher.router.route(key)
        self.dispatcher.take(PendingMessage(key, value, (), 0, self.told_of(value)))
        return partition

    def told_of(self, value: bytes) -> sdk.OnDelivery:
        """Notes what became of the message, once."""

        def told(result: sdk.DeliveryResult | None, error: Exception | None) -> None:
            assert value not in self.told
            self.told[value] = result or error

        return told

    def partition(self, bucket: int) -> tuple[KafkaPartitionWriter, bytes]:
        """A bucket's partition writer and a key that goes there."""
        for number in range(1_000):
            key = b"key-%d" % number
            partition = self.dispatcher.router.route(key)
            if partition.bucket == bucket:
                return partition, key
        raise AssertionError("no key goes there")

    def proven(self, bucket: int) -> tuple[KafkaPartitionWriter, bytes]:
        """The same, once Kafka has acknowledged an append there."""
        partition, key = self.partition(bucket)
        partition.sent(None, b"x")
        partition.acked(0)
        return partition, key

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.at += 1.0
            self.dispatcher.poll()

    async def settled(self, *values: bytes) -> None:
        def are_told() -> bool:
            self.dispatcher.poll()
            return all(value in self.told for value in values)

        await until(are_told)


@pytest.fixture
def servers() -> Iterator[str]:
    """An address where nobody answers."""
    with nobody() as address:
        yield address


@asynccontextmanager
async def staged(servers: str, segments: int = 1, brokers: int = 1) -> AsyncIterator[Stage]:
    stage = Stage(servers, segments, brokers)
    try:
        yield stage
    finally:
        await stage.dispatcher.close()


@pytest.fixture
def stage(servers: str) -> Opening:
    return Opening(lambda: staged(servers))


async def test_a_bucket_that_gets_nowhere_is_given_up_while_others_get_on(stage: Stage) -> None:
    stuck, key = stage.proven(0)
    busy, _ = stage.proven(1)
    stage.send(b"one", key)
    for _ in range(20):
        busy.sent(None, b"x")
        stage.pass_s(1)
        busy.acked(-1)
    await stage.settled(b"one")

    error = stage.told[b"one"]
    assert isinstance(error, sdk.UnknownOutcomeError)
    assert stuck.where in str(error)
    assert "did not acknowledge it in 10 s" in str(error)
    assert "Kafka may have it" in str(error)


async def test_time_in_which_kafka_throttles_does_not_count_and_is_named(stage: Stage) -> None:
    stuck, key = stage.proven(0)
    _, other = stage.partition(1)
    stage.send(b"one", key)
    stage.send(b"two", other)  # goes alone, so the next is held
    stage.send(b"three", other)
    stuck.segment_writer.throttled.note(stage.at, 15.0)
    stage.pass_s(23)
    assert stage.told == {}
    stage.pass_s(5)
    await stage.settled(b"one", b"two", b"three")
    for error in stage.told.values():
        assert "in 10 s, and Kafka throttled this client for 15 s by a quota" in str(error)
        assert "raise its producer_byte_rate" in str(error)


async def test_time_is_up_for_each_message_by_itself_and_not_before(stage: Stage) -> None:
    partition, key = stage.partition(0)
    stage.send(b"first", key)  # goes alone, so the others are held
    stage.pass_s(5)
    stage.send(b"second", key)
    stage.pass_s(4)
    assert stage.told == {}
    stage.pass_s(3)
    await stage.settled(b"first")
    assert list(stage.told) == [b"first"]
    stage.pass_s(5)
    await stage.settled(b"second")
    error = stage.told[b"second"]
    assert isinstance(error, sdk.DeliveryError)
    assert partition.where in str(error)


async def test_what_was_never_handed_to_kafka_is_said_to_be_not_sent(stage: Stage) -> None:
    partition, key = stage.partition(0)
    partition.pause()
    stage.send(b"held", key)
    stage.pass_s(12)
    await stage.settled(b"held")
    error = stage.told[b"held"]
    assert type(error) is sdk.DeliveryError
    assert f"to {partition.where} could not be sent in 10 s" in str(error)


async def test_what_follows_something_given_up_goes_by_a_new_writer(stage: Stage) -> None:
    partition, key = stage.proven(0)
    stage.send(b"one", key)
    stage.pass_s(12)
    await stage.settled(b"one")
    again = stage.send(b"two", key)
    assert (again.segment, again.bucket) == (partition.segment, partition.bucket)
    assert again.segment_writer is not partition.segment_writer
    assert (again.forgone, again.proven, again.appended) == (0, False, 1)
    assert partition.segment_writer not in list(stage.dispatcher.writers)


async def test_a_client_of_kafka_that_takes_nothing_more_is_replaced(stage: Stage) -> None:
    partition, key = stage.proven(0)
    partition.segment_writer.is_broken = True
    stage.pass_s(3)
    again = stage.send(b"one", key)
    assert again.segment_writer is not partition.segment_writer
    assert again.appended == 1


async def test_a_sealed_segments_client_of_kafka_is_not_replaced_again_and_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    partition, _ = stage.proven(0)
    stage.partition(1)
    stage.dispatcher.router.close(partition)
    partition.leaving_since = stage.at
    partition.segment_writer.is_broken = True
    stage.pass_s(5)
    assert caplog.text.count("producer.gives_up") == 1, "for the buckets that go on"


async def test_a_flow_that_rested_for_long_begins_with_a_single_append_again(stage: Stage) -> None:
    rested, key = stage.proven(0)
    busy, _ = stage.proven(1)
    for _ in range(100):
        busy.sent(None, b"x")
        busy.acked(-1)
        stage.at += 60.0
        stage.dispatcher.poll()
    assert busy.ready
    assert not rested.ready
    appended = rested.appended
    assert stage.send(b"one", key) is rested
    stage.send(b"two", key)
    assert (rested.appended, [held.value for held in rested.held]) == (appended + 1, [b"two"])


async def test_writers_without_anything_are_closed_with_their_threads(servers: str) -> None:
    async with staged(servers, segments=16) as stage:
        for number in range(200):
            partition = stage.dispatcher.router.route(b"key-%d" % number)
            if not partition.proven:
                partition.sent(None, b"x")
                partition.acked(0)
        assert len(list(stage.dispatcher.writers)) == 16
        stage.pass_s(3)
        stage.at += 400.0
        stage.dispatcher.poll()
        assert list(stage.dispatcher.writers) == []
        assert stage.dispatcher.router.writers() == []
        await until(lambda: not any(t.name == _CLOSING for t in threading.enumerate()))


_CLOSING = "segment-writer-close"


async def test_a_segment_that_retires_while_the_producer_starts_is_no_error(stage: Stage) -> None:
    starting = asyncio.create_task(stage.dispatcher.start())
    await asyncio.sleep(0)  # it asks Kafka for the segment, on a thread
    stage.dispatcher.update(_split(stage.servers))
    await until(lambda: not any(t.name == _CLOSING for t in threading.enumerate()))
    await starting


async def test_a_writer_that_is_closed_is_asked_nothing_more(stage: Stage) -> None:
    writer = SegmentWriter(stage.layout, sdk.ProducerSettings(), {}, Throttled())
    writer.close()
    await writer.warm("t0")
    await writer.await_leaders("t0")
    with pytest.raises(ConnectionError, match="has no leader"):
        writer.leader("t0", 0)


async def test_a_child_takes_its_first_append_when_its_leaders_lead(stage: Stage) -> None:
    sealing = announced(SegmentLayout.initial(1, 4), stage.servers)
    parent = stage.dispatcher.router.route(b"key")
    stage.dispatcher.update(sealing)
    assert stage.dispatcher.router.route(b"key") is parent
    parent.segment_writer.copies = 1  # so that nobody else takes what its leader refuses
    stage.dispatcher.router.close(parent)  # Kafka refuses
    stage.dispatcher.poll()
    partition = stage.send(b"one", b"key")
    assert partition.segment.segment_id in (1, 2)
    assert (partition.appended, len(partition.held)) == (0, 1)
    await until(lambda: partition.appended == 1)
    assert not partition.held


@pytest.mark.parametrize("copies", [3, 0], ids=["several copies", "not known"])
async def test_a_bucket_with_copies_is_left_when_its_segment_is_sealed_not_when_it_refuses(
    stage: Stage, copies: int
) -> None:
    first = SegmentLayout.initial(1, 4)
    parent = stage.dispatcher.router.route(b"key")
    parent.segment_writer.copies = copies
    stage.dispatcher.update(announced(first, stage.servers))
    stage.dispatcher.router.close(parent)  # Kafka refuses
    stage.dispatcher.poll()
    assert stage.send(b"one", b"key") is parent
    stage.dispatcher.update(layout_of(first.split_segment(0), stage.servers, epoch=3))
    assert stage.dispatcher.router.route(b"key").segment.segment_id in (1, 2)


def announced(first: SegmentLayout, servers: str) -> sdk.TopicLayout:
    """The layout of a topic whose only segment is being split, and refuses from now on."""
    children = tuple(sdk.Segment(part, f"t{part.segment_id}") for part in first.split_children(0))
    return layout_of(
        first, servers, epoch=2, children=children, parents_under_way=frozenset({0}), sealing=True
    )


@pytest.mark.parametrize(("brokers", "writers"), [(1, 1), (3, 4), (0, 4)])
async def test_buckets_share_a_writer_only_where_one_broker_leads_them_all(
    servers: str, brokers: int, writers: int
) -> None:
    async with staged(servers, brokers=brokers) as stage:
        partitions = [stage.partition(bucket)[0] for bucket in range(4)]
        assert len({id(partition.segment_writer) for partition in partitions}) == writers


def _split(servers: str) -> sdk.TopicLayout:
    """The stage's topic, once its segment is sealed and split."""
    plain = SegmentLayout.initial(1, 4)
    split = plain.replaced((0,), plain.split_children(0), {0: (5, 5, 5, 5)}, 0)
    return layout_of(split, servers, epoch=2)


async def test_messages_that_no_client_of_kafka_can_be_made_for_fail_and_later_ones_go_on(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "no thread is left"))

    async with staged(servers) as stage:
        partition, key = stage.proven(0)
        partition.pause()
        stage.send(b"held", key)
        monkeypatch.setattr(segment_writer, "Producer", refuse)
        stage.dispatcher.update(_split(servers))
        await stage.settled(b"held")
        assert type(stage.told[b"held"]) is sdk.DeliveryError
        with pytest.raises(sdk.DeliveryError, match="no thread is left"):
            stage.dispatcher.take(PendingMessage(key, b"new", (), 0, stage.told_of(b"new")))
        assert (stage.dispatcher.under_way.count, stage.dispatcher.under_way.bytes) == (0, 0)
        monkeypatch.undo()
        assert stage.send(b"later", key).appended == 1


async def test_a_fault_while_doubt_is_settled_fails_what_is_in_doubt_and_the_bucket_goes_on(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with staged(servers) as stage:
        monkeypatch.setattr(settlement, "found", fault)
        partition, key = stage.proven(0)
        stage.send(b"in doubt", key)
        partition.was_refused(
            PendingMessage(key, b"in doubt", (), 0, stage.told_of(b"in doubt")), in_doubt=True
        )
        stage.dispatcher.awaited.clear()
        stage.dispatcher.router.close(partition)
        stage.send(b"held", key)
        stage.dispatcher.update(_split(servers))
        await stage.settled(b"in doubt")
        assert isinstance(stage.told[b"in doubt"], sdk.UnknownOutcomeError)
        assert "can't start new thread" in str(stage.told[b"in doubt"])
        assert stage.dispatcher.router.leaving == []
        assert stage.dispatcher.router.route(key).segment.segment_id > 0
        assert b"held" not in stage.told


async def test_where_no_segment_is_active_messages_fail_with_or_without_a_key(
    stage: Stage,
) -> None:
    for key in (b"key", None):
        stage.dispatcher.router.route(key).pause()
        stage.dispatcher.take(PendingMessage(key, b"%r" % key, (), 0, stage.told_of(b"%r" % key)))
    stage.dispatcher.update(layout_of(SegmentLayout(2, 1, ()), stage.servers, epoch=2))
    await stage.settled(b"None", b"b'key'")
    assert all("No segment" in str(each) for each in stage.told.values())
    for key in (b"key", None):
        with pytest.raises(UncoveredHashError):
            stage.dispatcher.take(PendingMessage(key, b"late"))
    assert stage.dispatcher.under_way.count == 0


async def test_a_deleted_topic_leaves_no_flow_and_no_writer(stage: Stage) -> None:
    partition, key = stage.proven(0)
    stage.partition(1)
    stage.send(b"one", key)
    stage.dispatcher.update(stage.layout.as_deleted())
    await stage.settled(b"one")
    assert isinstance(stage.told[b"one"], sdk.TopicNotFoundError)
    assert stage.dispatcher.router.writers() == []
    assert (list(stage.dispatcher.writers), stage.dispatcher.router.routes) == ([], {})
    assert partition.outstanding == 0


async def test_closing_tells_of_every_message_what_became_of_it(stage: Stage) -> None:
    _, key = stage.partition(0)
    stage.send(b"first", key)
    stage.send(b"held", key)
    await stage.dispatcher.close()
    assert isinstance(stage.told[b"first"], sdk.UnknownOutcomeError)
    assert type(stage.told[b"held"]) is sdk.DeliveryError
    assert "the producer was closed" in str(stage.told[b"first"])
    assert stage.dispatcher.under_way.count == 0


async def test_what_is_sent_to_a_segment_whose_topic_is_gone_fails_at_once_and_no_other(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: set[str] = set()

    async def lacks(_: SegmentWriter, kafka_topic: str) -> bool:
        return kafka_topic in gone

    monkeypatch.setattr(SegmentWriter, "lacks", lacks)
    async with staged(servers, 2) as stage:
        lost, key = stage.proven(0)
        keyless = {stage.dispatcher.router.route(None).segment.segment_id for _ in range(16)}
        assert keyless == {0, 1}
        gone.add(lost.topic)
        stage.send(b"under way", key)
        for _ in range(5):
            stage.pass_s(1)
            await asyncio.sleep(0)
        await stage.settled(b"under way")
        stage.send(b"later", key)
        await stage.settled(b"later")
        for value in (b"under way", b"later"):
            error = stage.told[value]
            assert type(error) is sdk.SegmentMissingError
            assert lost.topic in str(error)
        routed = [stage.dispatcher.router.route(None) for _ in range(16)]
        assert lost.segment not in {each.segment for each in routed}

        gone.clear()
        stage.pass_s(1)
        await asyncio.sleep(0)
        again = stage.dispatcher.router.route(key)
        assert again.may_append, "Kafka has it again"
