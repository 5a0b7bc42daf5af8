"""What is kept for subscriptions, used or not: positions, unread messages, and they themselves."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.subscriptions.known_positions import CommittedPosition
from anabranch.core.topics.kafka_names import producer_name
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.kept_topic import NAME, NOW, KeptTopic, kept_topic
from support.memory_cluster import until


def positions(kept: KeptTopic) -> list[int]:
    return [kept.billing.position(0, bucket) for bucket in range(4)]


# --- positions ------------------------------------------------------------------------------


async def test_what_kafka_forgets_or_a_stranger_writes_is_read_on_from_where_the_log_has_it() -> (
    None
):
    async with kept_topic() as kept:
        group = await kept.made()
        kept.groups[group] = {(kept.kafka, 0): 7, (kept.kafka, 1): 3}
        await kept.look()
        del kept.groups[group]
        await kept.look()
        assert positions(kept) == [7, 3, 0, 0]
        known = {"billing": kept.billing}
        found = await kept.topics.backlogs.of(NAME, kept.topics.topic(NAME), known)
        assert found["billing"].messages == 3 + 7 + 10 + 10
        kept.groups[group] = {(kept.kafka, 1): CommittedPosition(2)}  # a stranger has put it back
        await kept.look()
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            (segment,) = client.assigned[-1].segments
            assert list(segment.start_offsets) == [7, 3, 0, 0]


async def test_what_was_read_before_a_seek_is_not_written_down_after_it() -> None:
    """Neither as positions, nor as a segment that is drained."""

    async with kept_topic() as kept:
        group = await kept.made()
        await kept.topics.split(NAME, 0)
        kept.groups[group] = {(kept.kafka, bucket): 10 for bucket in range(4)}
        kept.cluster.positions.hold.clear()
        looking = asyncio.create_task(kept.look())
        await until(lambda: kept.cluster.positions.calls != [])
        await kept.topics.subscriptions.reset(NAME, "billing", EARLIEST)
        kept.cluster.positions.hold.set()
        await looking
        assert (positions(kept), kept.drained()) == ([0, 0, 0, 0], ())


async def test_what_is_in_use_is_written_down_now_and_then_and_at_once_when_it_is_not() -> None:
    async with kept_topic() as kept:
        read = kept.groups.setdefault(await kept.made(), {})
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            for read[kept.kafka, 0] in (3, 4, 5):
                await kept.look()
            assert positions(kept) == [3, 0, 0, 0]
            await client.leave()
        await kept.look()
        assert positions(kept) == [5, 0, 0, 0]
        before = kept.billing
        await kept.look()
        assert kept.billing == before  # nothing has moved


async def test_what_a_seek_passes_over_nobody_has_read() -> None:
    async with kept_topic() as kept:
        await kept.made()
        await kept.look()
        await kept.topics.subscriptions.reset(NAME, "billing", LATEST)
        await kept.look()
        seen = kept.topics.surveys.seen[NAME]
        assert (seen.read, seen.rates) == ({"billing": 40}, {})


async def test_where_a_checkpoint_begins_is_left_to_its_consumers() -> None:
    async with kept_topic() as kept:
        group = await kept.made(SubscriptionKind.CHECKPOINT, start=4)
        kept.groups[group] = {(kept.kafka, 0): 7}
        await kept.look()
        assert positions(kept) == [4, 4, 4, 4]
        assert kept.topics.surveys.seen[NAME].left == {"billing": 3 + 6 + 6 + 6}


@pytest.mark.parametrize("kind", [SubscriptionKind.STREAM, SubscriptionKind.CHECKPOINT])
async def test_what_retention_has_taken_unread_keeps_nothing_from_being_drained(
    kind: SubscriptionKind,
) -> None:
    async with kept_topic() as kept:
        await kept.made(kind)
        await kept.topics.split(NAME, 0)
        for begin, drained in ((9, ()), (10, (0,))):
            kept.begins.update({(kept.kafka, bucket): begin for bucket in range(4)})
            await kept.look()
            assert kept.drained() == drained


async def test_what_consumers_serve_they_call_drained_themselves() -> None:
    async with kept_topic() as kept:
        group = await kept.made()
        await kept.topics.split(NAME, 0)
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            kept.groups[group] = {(kept.kafka, bucket): 10 for bucket in range(4)}
            await kept.look()
            assert kept.drained() == ()
            await client.leave()
        await kept.look()
        assert kept.drained() == (0,)


async def test_a_round_says_what_it_could_not_do(capsys: pytest.CaptureFixture[str]) -> None:
    async with kept_topic() as kept:
        group = await kept.made()
        kept.groups[group] = {(kept.kafka, 0): 7}
        kept.cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
        await kept.topics.surveys.round()
        await kept.topics.surveys.round()
        kept.cluster.positions.failure = None
        await kept.topics.surveys.round()
        assert (positions(kept), kept.cluster.segments.retained) == ([7, 0, 0, 0], {kept.kafka})
    assert capsys.readouterr().out.count("topic.not_kept") == 1


# --- messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"scalableTopicRetentionSeconds": -1}])
async def test_what_is_not_old_enough_is_kept(settings: dict[str, object]) -> None:
    async with kept_topic(**settings) as kept:
        # A record's offset is its time.
        kept.cluster.segments.ends[kept.kafka] = [kept.node.runtime.core.log_ms + 10_000] * 4
        await kept.look()
        if settings:
            assert kept.begins == {}
        else:
            week_ms = 604_800_000
            for begin in kept.begins.values():
                assert 0 < begin <= kept.node.runtime.core.log_ms - week_ms
            assert len(kept.begins) == 4


async def test_nothing_is_deleted_of_what_a_subscription_made_meanwhile_is_to_read() -> None:
    async with kept_topic(**NOW) as kept:
        kept.cluster.positions.hold.clear()
        looking = asyncio.create_task(kept.look())
        await until(lambda: kept.cluster.positions.calls != [])
        await kept.made()
        kept.cluster.positions.hold.set()
        await looking
        assert kept.begins == {}


# --- subscriptions --------------------------------------------------------------------------

SHORT = {"scalableTopicSubscriptionExpirySeconds": 3}


@pytest.mark.parametrize("kind", list(SubscriptionKind))
async def test_a_subscription_that_nobody_uses_expires_and_is_announced(
    kind: SubscriptionKind, capsys: pytest.CaptureFixture[str]
) -> None:
    async with kept_topic(**SHORT) as kept:
        group = await kept.made(kind)
        told: list[float] = []

        while kept.node.view.subscription(NAME, "billing") is not None:
            await kept.look()
            told.extend(kept.topics.surveys.expiry.soon.values())
        assert told
        assert max(told) <= 0.25 * 3
        assert kept.topics.surveys.expiry.soon == {}
        await until(lambda: group in kept.cluster.segments.deleted_groups)
    out = capsys.readouterr().out
    assert out.index("subscription.expires ") < out.index("subscription.expired ")


async def test_by_default_no_subscription_expires() -> None:
    async with kept_topic() as kept:
        await kept.made()
        kept.node.runtime.core.log_ms += 10 * 365 * 86_400_000
        await kept.look()
        assert kept.node.view.subscription(NAME, "billing") is not None
        assert kept.topics.surveys.expiry.soon == {}


@pytest.mark.parametrize("kind", ["STREAM", "QUEUE"])
async def test_a_subscription_that_is_in_use_does_not_expire(kind: str) -> None:
    async with kept_topic(**SHORT) as kept, client_of(kept.node, "a") as client:
        await client.subscribe(kind=pb.ScalableConsumerType.Value(kind))
        over = kept.node.runtime.core.log_ms + 4_000
        while kept.node.runtime.core.log_ms < over:
            await kept.look()
            await client.report()
        assert kept.topics.surveys.expiry.soon == {}
        assert kept.node.view.subscription(NAME, "billing") is not None


async def test_a_plain_consumer_in_its_group_keeps_a_subscription() -> None:
    async with kept_topic(**SHORT) as kept:
        kept.cluster.positions.members.add(await kept.made())
        before = kept.billing
        while kept.billing == before:
            await kept.look()
        assert "has_members" in kept.cluster.positions.calls


# --- what is left of them -------------------------------------------------------------------


async def test_the_groups_of_subscriptions_that_are_no_more_are_found_and_deleted() -> None:
    async with kept_topic() as kept:
        topics, groups = kept.topics, kept.groups
        former = await kept.made()
        await topics.subscriptions.delete(NAME, "billing")
        used = await kept.made()
        later = f"{kept.node.settings.topic_prefix}subscription.public.default.orders.later.999999"
        member = f"{kept.node.settings.topic_prefix}subscription.public.default.orders.other.1"
        strange = f"{kept.node.settings.topic_prefix}subscription.{'9' * 5_000}"  # no int takes it
        named, _ = producer_name(kept.node.settings.topic_prefix, NAME, 1, 7)
        groups |= {former: {}, used: {}, later: {}, member: {}, strange: {}, "anybodys.57": {}}
        groups[named] = {}
        kept.cluster.positions.members.add(member)
        kept.cluster.segments.deleted_groups.clear()
        await topics.subscriptions.groups.delete_strays(topics.surveys._positions)
        await until(lambda: kept.cluster.segments.deleted_groups == {former})


async def test_a_topic_that_nothing_is_done_for_has_its_gauges_at_its_owner() -> None:
    async with kept_topic() as kept:
        kept.topics.access.service.replaced()  # it has no controller any more
        labels = {"topic": NAME}
        registry = kept.node.metrics.registry

        def shown(metric: str, **more: str) -> float | None:
            return registry.get_sample_value(metric, {**labels, **more})

        assert shown("pulsar_scalable_topic_active_segments") == 1
        assert shown("pulsar_scalable_topic_auto_splits_total") == 0
        assert shown("pulsar_scalable_topic_segment_entry_buckets", segment="0") == 4
        assert shown("anabranch_topic_messages_in_per_second") == 0
        group = await kept.made()
        kept.groups[group] = {(kept.kafka, 0): 7}
        await kept.look()
        billing_ = {"subscription": "billing"}
        assert shown("anabranch_subscription_backlog_messages", **billing_) == 33
        assert shown("anabranch_topic_stored_messages") == 40
