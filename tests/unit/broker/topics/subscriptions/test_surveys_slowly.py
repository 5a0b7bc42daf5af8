"""A Kafka that takes its time, or does not tell of one group, while subscriptions are kept."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.channel.kafka.offsets import EARLIEST, Place
from anabranch.core.subscriptions.subscription import SubscriptionKind
from support.kept_topic import NAME, run
from support.memory_cluster import MemoryCluster, MemoryNode, until


def test_a_topic_that_kafka_is_slow_for_keeps_no_other_waiting() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        for name in (NAME, f"{NAME}2", f"{NAME}3"):
            if name != NAME:
                await topics.create(name, 1, {})
            await topics.consumers.create(name, "billing", SubscriptionKind.STREAM, EARLIEST)
        await topics.surveys.round()  # in which also groups are searched
        topics.surveys.seen.clear()
        cluster.positions.calls.clear()
        cluster.positions.hold.clear()
        looking = asyncio.create_task(topics.surveys.round())
        await until(lambda: len(cluster.positions.calls) == 3)
        cluster.positions.hold.set()
        await looking
        assert len(topics.surveys.seen) == 3

    run(test)


def test_a_group_that_kafka_does_not_tell_of_keeps_no_other_from_being_written_down() -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        await topics.consumers.create(NAME, "audit", SubscriptionKind.STREAM, EARLIEST)
        audit = topics.access.group_id(NAME, "audit", topics.consumers.known(NAME, "audit"))
        await topics.consumers.create(NAME, "billing", SubscriptionKind.STREAM, EARLIEST)
        billing = topics.consumers.known(NAME, "billing")
        group = topics.access.group_id(NAME, "billing", billing)
        (kafka,) = cluster.segments.ends
        cluster.positions.groups[group] = {(kafka, 0): 7}
        cluster.positions.silent = {audit}
        with pytest.raises(UnavailableError, match="how far each subscription has read"):
            await topics.surveys.look(NAME)
        assert topics.consumers.known(NAME, "billing").position(0, 0) == 7

    run(test)


def test_groups_for_which_no_time_was_left_are_asked_for_first_in_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(cluster: MemoryCluster, node: MemoryNode) -> None:
        topics = node.operations.topics
        names = [f"billing{number}" for number in range(5)]
        for each in names:
            await topics.consumers.create(NAME, each, SubscriptionKind.STREAM, EARLIEST)
        asked: list[str] = []

        class Slow:
            """A clock on which each question takes 20 of the 30 s that a look has."""

            @staticmethod
            def now() -> float:
                return 20.0 * len(asked)

        def committed(group: str, *_: object) -> dict[Place, int]:
            asked.append(group)
            return {}

        monkeypatch.setattr("anabranch.broker.topics.subscriptions.positions.clock", Slow)
        monkeypatch.setattr(cluster.positions, "committed", committed)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await topics.surveys.look(NAME)
        assert len(asked) == 6
        assert len(set(asked)) == 5

    run(test)
