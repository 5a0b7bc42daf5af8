"""In which order a consumer takes what was read, and when what was reached counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from anabranch import client as sdk
from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.group_offsets import Answers
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Source
from anabranch.client._consumer.reads import Read
from support.lone_consumers import consuming


async def test_what_is_there_is_received_also_by_who_has_no_time_to_wait() -> None:
    async with consuming(4) as (consumer, plane):
        plane.read(range(3))
        assert (await consumer.receive(timeout_s=0)).offset == 0
        batch = await consumer.receive_many(timeout_s=0)
        assert [message.offset for message in batch] == [1, 2]
        for receive in (consumer.receive, consumer.receive_many):
            with pytest.raises(sdk.DeadlineError, match="in 0 s"):
                await receive(timeout_s=0)
        plane.read([3])
        assert (await consumer.receive_many(timeout_s=0)).values() == [b"3"]


async def test_what_is_taken_of_several_fetches_is_shared_out_by_how_far_each_came() -> None:
    async with consuming(200) as (consumer, plane):
        reading = consumer._reading
        (first,) = reading._sources.values()
        other = Source("t", 99, Holding(SegmentBucket(20, 0), "k20", None), consumer._settings)
        reading._sources[99] = other
        for ends in ({first.number: 30, 99: 10}, {first.number: 20, 99: 20}):
            plane.reads.append(Read([Message()] * 40, ends, {}, 4_000))
            assert reading.take() is not None
        told = {each.segment_id: each for each in consumer._watch.traffic.news()}
        assert [(told[n].messages, told[n].bytes) for n in (0, 20)] == [(30, 3_000), (50, 5_000)]


async def test_the_end_of_a_transaction_counts_once_all_before_it_is_acknowledged() -> None:
    async with consuming(4) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        plane.read(range(3))
        plane.reach(4)
        consumer.acknowledge(await consumer.receive(1))
        assert holding.acknowledged == 1, "the others are not received yet"
        rest = await consumer.receive_many(timeout_s=1)
        with pytest.raises(sdk.DeadlineError):
            await consumer.receive(timeout_s=0)
        assert holding.acknowledged == 1, "they are not acknowledged"
        consumer.acknowledge(rest)
        assert (holding.acknowledged, holding.at_end) == (4, True)


async def test_a_transaction_that_was_given_up_keeps_no_bucket_from_its_end() -> None:
    async with consuming(7) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        plane.reach(2)
        plane.read([2, 3])
        plane.reach(7)
        batch = await consumer.receive_many(timeout_s=0)
        assert holding.acknowledged == 2, "nothing was in flight"
        consumer.acknowledge(batch)
        with pytest.raises(sdk.DeadlineError):
            await consumer.receive(timeout_s=0)
        assert (holding.acknowledged, holding.at_end) == (7, True)


async def test_what_lies_behind_the_logged_end_is_neither_delivered_nor_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with consuming(4) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        plane.read(range(2, 7))
        plane.reach(9)
        batch = await consumer.receive_many(timeout_s=0)
        assert ([message.offset for message in batch], list(batch.ends.values())) == ([2, 3], [4])
        consumer.acknowledge(batch)
        with pytest.raises(sdk.DeadlineError):
            await consumer.receive(timeout_s=0)
        assert (holding.acknowledged, holding.at_end) == (4, True)
        assert [vars(each)["fields"] for each in caplog.records] == [
            {"kafka_topic": "k", "bucket": 0, "end": 4, "read_to": 7}
        ]


async def test_a_stray_behind_a_transactions_end_keeps_no_bucket_from_its_end() -> None:
    async with consuming(10) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        plane.read(range(9))
        consumer.acknowledge(await consumer.receive_many(timeout_s=0))
        plane.read([11])
        plane.reach(13)
        with pytest.raises(sdk.DeadlineError):
            await consumer.receive_many(timeout_s=0)
        assert (holding.acknowledged, holding.at_end) == (10, True)


async def test_a_segment_that_ended_before_what_is_worked_on_is_not_drained_yet() -> None:
    async with consuming(10) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        plane.read(range(3))
        batch = await consumer.receive_many(timeout_s=0)
        holding.end_offset = 0  # Kafka lost it, and it was split
        assert not holding.drained
        consumer.acknowledge(batch)
        assert holding.drained


async def test_a_commit_that_kafka_takes_ends_what_was_missing() -> None:
    now, refuses = 0.0, True
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    async def commit(offsets: Any, _until: float) -> Answers[int]:
        return Answers({}, dict.fromkeys(offsets, unknown)) if refuses else Answers(offsets, {})

    group: Any = SimpleNamespace(commit=commit)
    async with consuming(10) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        consumer._reading.trouble._clock = lambda: now
        plane.read(range(5))
        consumer.acknowledge(await consumer.receive_many(timeout_s=0))
        for refuses, end, now in ((True, 3, 0.0), (False, 3, 1.0), (True, 5, 3_600.0)):  # noqa: B007
            await consumer._commit(group, [(holding, end)])
        assert holding.committed == 3, "a new topic may be unknown for a moment"


async def test_what_is_served_can_be_asked_while_another_thread_changes_it() -> None:
    async with consuming(4) as (consumer, _plane):
        fetches = consumer._core._fetches

        class Racing:
            """A holding at whose turn another one is granted."""

            @property
            def place(self) -> SegmentBucket:
                fetches[len(fetches) + 1_000] = fetches[min(fetches)]
                return SegmentBucket(0, 7)

        racing: Any = Racing()
        fetches[999] = racing
        assert consumer.buckets == [(0, 0), (0, 7)]
