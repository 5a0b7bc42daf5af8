"""What becomes of positions that a stranger has changed in Kafka, by a controller's look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.offsets import Place
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.subscriptions.known_positions import (
    CommittedPosition,
    PositionFinding,
    kept_mark,
    mark_of,
)
from support.binary_consumer import client_of
from support.kept_topic import NAME, KeptTopic, kept_topic
from support.memory_cluster import until

SERVED = {"brokerServicePort": 0}


def logged(kept: KeptTopic) -> list[int]:
    found = kept.billing.positions
    return list(found[0].offsets) if found else []


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_live_consumer_is_told_to_commit_again_and_the_log_knows_at_once(
    is_deleted: bool,
) -> None:
    async with kept_topic(**SERVED) as kept:
        watch = kept.topics.position_watch
        async with client_of(kept.node, "a") as client:
            await client.subscribe()
            group = kept.group()
            mark = mark_of(kept.billing.created_offset)
            kept.groups[group] = {(kept.kafka, 0): CommittedPosition(7, mark)}
            await watch.round()
            assert watch.found == {}
            if is_deleted:
                del kept.groups[group]
            else:
                kept.groups[group] = {(kept.kafka, 0): CommittedPosition(1)}
            await watch.round()
            assert logged(kept) == [7, 0, 0, 0]
            await until(lambda: client.assigned[-1].commits_again)
            assert list(client.assigned[-1].segments[0].start_offsets) == [7, 0, 0, 0]
            assert group not in kept.groups or kept.groups[group] == {
                (kept.kafka, 0): CommittedPosition(1)
            }
            await watch.round()
        how = PositionFinding.GONE if is_deleted else PositionFinding.OVERWRITTEN
        assert watch.found == {how: 1}, "it is told once, as long as it is the same"


async def test_where_nobody_consumes_kafka_is_told_what_the_log_has() -> None:
    async with kept_topic() as kept:
        watch, group = kept.topics.position_watch, await kept.made()
        kept.groups[group] = {
            (kept.kafka, 0): CommittedPosition(7, mark_of(kept.billing.created_offset))
        }
        await watch.round()
        kept.groups[group] = {
            (kept.kafka, 0): CommittedPosition(10),
            (kept.kafka, 1): CommittedPosition(10),
        }
        await watch.round()
        kept_for = kept_mark(kept.billing.created_offset)
        right = {
            (kept.kafka, bucket): CommittedPosition(at, kept_for)
            for bucket, at in enumerate([7, 0])
        }
        assert (logged(kept), kept.groups[group]) == ([7, 0, 0, 0], right)
        await watch.round()
        assert watch.found == {PositionFinding.OVERWRITTEN: 1}


async def test_a_seek_keeps_the_group_and_what_comes_late_for_the_life_before_is_nothing() -> None:
    async with kept_topic() as kept:
        watch, group = kept.topics.position_watch, await kept.made()
        former = CommittedPosition(7, mark_of(kept.billing.created_offset))
        kept.groups[group] = {(kept.kafka, 0): former}
        await watch.round()
        await kept.topics.subscriptions.reset(NAME, "billing", 5)
        assert kept.group() == group
        await watch.round()
        assert {each.offset for each in told(kept, group)} == {5}
        kept.groups[group][kept.kafka, 0] = former
        await watch.round()
        assert {each.offset for each in told(kept, group)} == {5}
        assert logged(kept) == [5, 5, 5, 5]


def told(kept: KeptTopic, group: str) -> list[CommittedPosition]:
    return [each for each in kept.groups[group].values() if isinstance(each, CommittedPosition)]


async def test_what_a_consumer_said_when_it_let_go_is_where_the_next_one_begins() -> None:
    async with kept_topic(**SERVED) as kept:
        async with client_of(kept.node, "a") as first:
            await first.subscribe()
            await first.report(released={0: [0]}, committed=[6])
            await first.leave()
        async with client_of(kept.node, "b") as second:
            await second.subscribe()
            assert list(second.assigned[-1].segments[0].start_offsets) == [6, 0, 0, 0]


async def test_nothing_is_kept_in_kafka_that_the_log_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next controller would know neither: it believes no position of that mark."""

    async def overtaken(*_: object, **__: object) -> None:
        """Somebody else changes the subscription first."""

    async with kept_topic() as kept:
        watch, group = kept.topics.position_watch, await kept.made()
        theirs = CommittedPosition(7, mark_of(kept.billing.created_offset))
        stranger = CommittedPosition(10)
        kept.groups[group] = {(kept.kafka, 0): theirs, (kept.kafka, 1): theirs}
        await watch.round()
        kept.groups[group][kept.kafka, 0] = stranger
        with monkeypatch.context() as patch:
            patch.setattr(kept.topics.subscriptions, "change_as_read", overtaken)
            await watch.round()
        assert kept.groups[group] == {(kept.kafka, 0): stranger, (kept.kafka, 1): theirs}
        watch._wrong.clear()  # as if the time until the next try were over
        await watch.round()
        assert logged(kept) == [7, 7, 0, 0]
        assert [each.mark == theirs.mark for each in told(kept, group)] == [False, True]


async def test_what_kafka_refuses_to_put_right_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaRefusedError("it has members")

    async with kept_topic() as kept:
        watch, group = kept.topics.position_watch, await kept.made()
        kept.groups[group] = {(kept.kafka, 0): CommittedPosition(10)}
        monkeypatch.setattr(kept.cluster.positions, "commit", refuse)
        for _ in range(2):
            await watch.round()
        assert watch.found == {PositionFinding.OVERWRITTEN: 1}


async def test_a_subscription_that_is_no_more_is_forgotten() -> None:
    async with kept_topic() as kept:
        await kept.made()
        known, standing = kept.billing, kept.topics.consumers.standing
        before = standing.known(NAME, "billing", known)
        await kept.topics.position_watch.round()
        assert standing.known(NAME, "billing", known) is before
        await kept.topics.subscriptions.delete(NAME, "billing")
        await kept.topics.position_watch.round()
        assert standing.known(NAME, "billing", known) is not before


async def test_groups_for_which_one_question_has_no_time_are_asked_for_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kept_topic() as kept:
        positions, every = kept.cluster.positions, ["billing", "shipping", "audit"]
        for each in every:
            await kept.topics.subscriptions.create(NAME, each, SubscriptionKind.STREAM)
        kept.groups.update(
            {kept.group(each): {(kept.kafka, 0): CommittedPosition(10)} for each in every}
        )
        ask = positions.committed_by

        def first_one(
            groups: Mapping[str, Sequence[Place]], deadline_s: float
        ) -> dict[str, dict[Place, CommittedPosition]]:
            return ask(dict(list(groups.items())[:1]), deadline_s)

        monkeypatch.setattr(positions, "committed_by", first_one)
        await kept.topics.position_watch.round()
        assert kept.topics.position_watch.found == {PositionFinding.OVERWRITTEN: 3}
