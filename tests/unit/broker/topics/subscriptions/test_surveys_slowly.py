"""A Kafka that takes its time, or does not tell of one group, while subscriptions are kept."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.channel.kafka.offsets import EARLIEST, Place
from anabranch.core.entities.subscription import SubscriptionKind
from support.kept_topic import NAME, kept_topic
from support.memory_cluster import until


async def test_a_topic_that_kafka_is_slow_for_keeps_no_other_waiting() -> None:
    async with kept_topic() as kept:
        for name in (NAME, f"{NAME}2", f"{NAME}3"):
            if name != NAME:
                await kept.topics.create(name, 1, {})
            await kept.topics.subscriptions.create(
                name, "billing", SubscriptionKind.STREAM, EARLIEST
            )
        await kept.topics.surveys.round()  # in which also groups are searched
        kept.topics.surveys.seen.clear()
        kept.cluster.positions.calls.clear()
        kept.cluster.positions.hold.clear()
        looking = asyncio.create_task(kept.topics.surveys.round())
        await until(lambda: len(kept.cluster.positions.calls) == 3)
        kept.cluster.positions.hold.set()
        await looking
        assert len(kept.topics.surveys.seen) == 3


async def test_a_group_that_kafka_does_not_tell_of_keeps_no_other_from_being_written_down() -> None:
    async with kept_topic() as kept:
        await kept.topics.subscriptions.create(NAME, "audit", SubscriptionKind.STREAM, EARLIEST)
        audit = kept.group("audit")
        await kept.topics.subscriptions.create(NAME, "billing", SubscriptionKind.STREAM, EARLIEST)
        group = kept.group()
        kept.groups[group] = {(kept.kafka, 0): 7}
        kept.cluster.positions.silent = {audit}
        with pytest.raises(UnavailableError, match="how far each subscription has read"):
            await kept.look()
        assert kept.topics.subscriptions.known(NAME, "billing").position(0, 0) == 7


async def test_groups_that_were_not_reached_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept_topic() as kept:
        names = [f"billing{number}" for number in range(5)]
        for each in names:
            await kept.topics.subscriptions.create(NAME, each, SubscriptionKind.STREAM, EARLIEST)
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
        monkeypatch.setattr(kept.cluster.positions, "committed", committed)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await kept.look()
        assert (len(asked), len(set(asked))) == (6, 5)
