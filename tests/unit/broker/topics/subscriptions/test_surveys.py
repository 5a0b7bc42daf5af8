"""What is kept for subscriptions, used or not: positions, unread messages, and they themselves."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.core.subscriptions.subscription import SubscriptionKind
from anabranch.wire import anabranch_pb2 as pb
from support.binary_consumer import client_of
from support.kept_topic import NAME, NOW, billing, made, run
from support.memory_cluster import MemoryCluster, MemoryNode, until


def positions(topics: TopicOperations) -> list[int]:
    return [billing(topics).position(0, bucket) for bucket in range(4)]


# --- positions ------------------------------------------------------------------------------


def test_a_subscription_goes_on_where_it_was_when_kafka_has_forgotten_its_group() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7, (kafka, 2): 10}
        await topics.surveys.look(NAME)
        del cluster.positions.groups[group]
        await topics.surveys.look(NAME)  # what Kafka does not say changes nothing
        assert positions(topics) == [7, 0, 10, 0]
        async with client_of(node, "a") as client:
            await client.subscribe()
            (segment,) = client.assigned[-1].segments
            assert list(segment.start_offsets) == [7, 0, 10, 0]
        known = {"billing": billing(topics)}
        found = await topics.backlogs.of(NAME, topics.topic(NAME), known)
        assert found["billing"].messages == 3 + 10 + 0 + 10

    run(test)


def test_a_bucket_that_kafka_has_forgotten_alone_keeps_its_position() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7, (kafka, 1): 3}
        await topics.surveys.look(NAME)
        cluster.positions.groups[group] = {(kafka, 1): 2}  # an operator has put it back
        await topics.surveys.look(NAME)
        assert positions(topics) == [7, 2, 0, 0]

    run(test)


def test_positions_that_were_read_before_a_seek_are_not_written_down_after_it() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7}
        cluster.positions.hold.clear()
        looking = asyncio.create_task(topics.surveys.look(NAME))
        await until(lambda: cluster.positions.calls != [])
        await topics.resets.reset(NAME, "billing", EARLIEST)
        cluster.positions.hold.set()
        await looking
        assert positions(topics) == [0, 0, 0, 0]

    run(test)


def test_what_is_in_use_is_written_down_now_and_then_and_at_once_when_it_is_not() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        read = cluster.positions.groups.setdefault(group, {})
        async with client_of(node, "a") as client:
            await client.subscribe()
            for read[kafka, 0] in (3, 4, 5):
                await topics.surveys.look(NAME)
            assert positions(topics) == [3, 0, 0, 0]
            await client.leave()
        await topics.surveys.look(NAME)
        assert positions(topics) == [5, 0, 0, 0]
        before = billing(topics)
        await topics.surveys.look(NAME)
        assert billing(topics) == before  # nothing has moved

    run(test)


def test_where_a_checkpoint_begins_is_left_to_its_consumers() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node, SubscriptionKind.CHECKPOINT, start=4)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7}
        await topics.surveys.look(NAME)
        assert positions(topics) == [4, 4, 4, 4]
        seen = topics.surveys.seen[NAME]
        assert seen.left == {"billing": 3 + 6 + 6 + 6}

    run(test)


def test_what_a_sealed_segment_holds_beyond_its_end_is_no_position() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        cluster.positions.groups[group] = {(kafka, bucket): 11 for bucket in range(3)}
        await topics.surveys.look(NAME)
        assert positions(topics) == [10, 10, 10, 0]

    run(test)


@pytest.mark.parametrize("kind", [SubscriptionKind.STREAM, SubscriptionKind.CHECKPOINT])
def test_what_is_committed_to_its_end_is_drained_though_nobody_is_there_to_say_so(
    kind: SubscriptionKind,
) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node, kind)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        await topics.split(NAME, 1)
        read = cluster.positions.groups[group] = {(kafka, bucket): 10 for bucket in range(3)}
        await topics.surveys.look(NAME)
        assert billing(topics).drained == (), "a bucket of it was never committed"
        read[kafka, 3] = 9
        await topics.surveys.look(NAME)
        assert billing(topics).drained == ()
        read[kafka, 3] = 10
        await topics.surveys.look(NAME)
        assert billing(topics).drained == (0, 1), "its child, which is empty, too"
        await topics.surveys.look(NAME)
        assert positions(topics) == [0, 0, 0, 0]

    run(test)


def test_what_consumers_serve_they_call_drained_themselves() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        async with client_of(node, "a") as client:
            await client.subscribe()
            cluster.positions.groups[group] = {(kafka, bucket): 10 for bucket in range(4)}
            await topics.surveys.look(NAME)
            assert billing(topics).drained == ()
            await client.leave()
        await topics.surveys.look(NAME)
        assert billing(topics).drained == (0,)

    run(test)


def test_what_was_drained_before_a_seek_is_not_called_drained_after_it() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        await topics.split(NAME, 0)
        cluster.positions.groups[group] = {(kafka, bucket): 10 for bucket in range(4)}
        cluster.positions.hold.clear()
        looking = asyncio.create_task(topics.surveys.look(NAME))
        await until(lambda: cluster.positions.calls != [])
        await topics.resets.reset(NAME, "billing", EARLIEST)
        cluster.positions.hold.set()
        await looking
        assert billing(topics).drained == ()

    run(test)


def test_a_round_looks_at_all_topics_and_says_what_it_could_not_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7}
        cluster.positions.failure = KafkaUnreachableError("Kafka does not answer")
        await topics.surveys.round()
        await topics.surveys.round()
        cluster.positions.failure = None
        await topics.surveys.round()
        assert positions(topics) == [7, 0, 0, 0]
        assert cluster.segments.retained == {kafka}

    run(test)
    assert capsys.readouterr().out.count("topic.not_kept") == 1


# --- messages -------------------------------------------------------------------------------


def test_what_every_subscription_has_read_is_deleted_and_nothing_else() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        first = await made(node)
        await topics.consumers.create(NAME, "audit", SubscriptionKind.CHECKPOINT)
        audit = topics.access.group_id(NAME, "audit", topics.consumers.known(NAME, "audit"))
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[first] = {(kafka, 0): 7, (kafka, 1): 9, (kafka, 2): 10}
        cluster.positions.groups[audit] = {(kafka, 0): 8, (kafka, 1): 4}
        await topics.surveys.look(NAME)
        assert cluster.positions.begins == {(kafka, 0): 7, (kafka, 1): 4}

    run(test, **NOW)


@pytest.mark.parametrize("kept", [{}, {"scalableTopicRetentionSeconds": -1}])
def test_what_is_not_old_enough_is_kept(kept: dict[str, object]) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        (kafka,) = cluster.segments.ends
        # A record's offset is its time.
        cluster.segments.ends[kafka] = [node.runtime.log_ms + 10_000] * 4
        await node.operations.topics.surveys.look(NAME)
        if kept:
            assert cluster.positions.begins == {}
        else:
            week_ms = 604_800_000
            for begin in cluster.positions.begins.values():
                assert 0 < begin <= node.runtime.log_ms - week_ms
            assert len(cluster.positions.begins) == 4

    run(test, **kept)


def test_a_topic_without_subscriptions_is_kept_for_the_time_of_what_all_have_read() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        (kafka,) = cluster.segments.ends
        await node.operations.topics.surveys.look(NAME)
        assert cluster.positions.begins == {(kafka, bucket): 10 for bucket in range(4)}

    run(test, **NOW)


def test_nothing_is_deleted_of_what_a_subscription_made_meanwhile_is_to_read() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        cluster.positions.hold.clear()
        looking = asyncio.create_task(node.operations.topics.surveys.look(NAME))
        await until(lambda: cluster.positions.calls != [])
        await made(node)
        cluster.positions.hold.set()
        await looking
        assert cluster.positions.begins == {}

    run(test, **NOW)


# --- subscriptions --------------------------------------------------------------------------

SHORT = {"scalableTopicSubscriptionExpirySeconds": 3}


@pytest.mark.parametrize("kind", list(SubscriptionKind))
def test_a_subscription_that_nobody_uses_expires_and_is_announced(
    kind: SubscriptionKind, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        group = await made(node, kind)
        told: list[float] = []

        while node.view.subscription(NAME, "billing") is not None:
            await topics.surveys.look(NAME)
            told.extend(topics.surveys.expiry.soon.values())
        assert told
        assert max(told) <= 0.25 * 3
        assert topics.surveys.expiry.soon == {}
        await until(lambda: group in cluster.segments.deleted_groups)

    run(test, **SHORT)
    out = capsys.readouterr().out
    assert out.index("subscription.expires ") < out.index("subscription.expired ")


def test_by_default_no_subscription_expires() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        await made(node)
        node.runtime.log_ms += 10 * 365 * 86_400_000
        await node.operations.topics.surveys.look(NAME)
        assert node.view.subscription(NAME, "billing") is not None
        assert node.operations.topics.surveys.expiry.soon == {}

    run(test)


@pytest.mark.parametrize("kind", ["STREAM", "QUEUE"])
def test_a_subscription_that_is_in_use_does_not_expire(kind: str) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        async with client_of(node, "a") as client:
            await client.subscribe(kind=pb.ScalableConsumerType.Value(kind))
            over = node.runtime.log_ms + 4_000
            while node.runtime.log_ms < over:
                await topics.surveys.look(NAME)
                await client.report()
            assert topics.surveys.expiry.soon == {}
            assert node.view.subscription(NAME, "billing") is not None

    run(test, **SHORT)


def test_a_plain_consumer_in_its_group_keeps_a_subscription() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        cluster.positions.members.add(await made(node))
        before = billing(topics)
        while billing(topics) == before:
            await topics.surveys.look(NAME)
        assert "has_members" in cluster.positions.calls

    run(test, **SHORT)


# --- what is left of them -------------------------------------------------------------------


def test_the_groups_of_subscriptions_that_are_no_more_are_found_and_deleted() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics, groups = node.operations.topics, cluster.positions.groups
        former = await made(node)
        await topics.consumers.delete(NAME, "billing")
        used = await made(node)
        later = f"{node.settings.topic_prefix}subscription.public.default.orders.later.999999"
        member = f"{node.settings.topic_prefix}subscription.public.default.orders.other.1"
        strange = f"{node.settings.topic_prefix}subscription.{'9' * 5_000}"  # no int takes it
        groups |= {former: {}, used: {}, later: {}, member: {}, strange: {}, "anybodys.57": {}}
        cluster.positions.members.add(member)
        cluster.segments.deleted_groups.clear()
        await topics.surveys.strays.search()
        await until(lambda: cluster.segments.deleted_groups == {former})

    run(test)


def test_a_group_is_deleted_again_once_nobody_commits_in_its_name() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        group = await made(node)
        await node.operations.topics.consumers.delete(NAME, "billing")
        await until(lambda: group in cluster.segments.deleted_groups)
        cluster.segments.deleted_groups.clear()  # a late commit brings it back
        await until(lambda: group in cluster.segments.deleted_groups)

    run(test, scalableTopicConsumerSessionTimeoutSeconds=2)


def test_a_node_that_stops_deletes_no_group_again() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        await made(node)
        await node.operations.topics.consumers.delete(NAME, "billing")
        (later,) = node.operations.topics.consumers.groups._later.values()
        await node.operations.topics.stop()
        assert later.cancelled()

    run(test)


def test_a_topic_that_nothing_is_done_for_has_its_gauges_at_its_owner() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        node.operations.topics.access.service.replaced()  # it has no controller any more
        labels = {"topic": NAME}
        registry = node.metrics.registry

        def shown(metric: str, **more: str) -> float | None:
            return registry.get_sample_value(metric, {**labels, **more})

        assert shown("pulsar_scalable_topic_active_segments") == 1
        assert shown("pulsar_scalable_topic_auto_splits_total") == 0
        assert shown("pulsar_scalable_topic_segment_entry_buckets", segment="0") == 4
        assert shown("anabranch_topic_messages_in_per_second") == 0
        group = await made(node)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7}
        await node.operations.topics.surveys.look(NAME)
        billing_ = {"subscription": "billing"}
        assert shown("anabranch_subscription_backlog_messages", **billing_) == 33
        assert shown("anabranch_topic_stored_messages") == 40

    run(test)
