"""Clients of Kafka that the topics of one consumer share: how many there are, and what a topic more
costs those that are there.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from confluent_kafka import TopicPartition

from anabranch.client import ReadSettings
from anabranch.client._consumer.assignment import Fetch, SegmentBucket
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._many.plane import TIERS, SharedPlane, SharedPlanes
from support.waiting import until

NOWHERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
COUNT = 200


class Noting(SharedPlane):
    """Notes how many partitions are assigned together, and how many unassigned."""

    together: list[int]
    ended: list[int]

    def _reassign(self, ended: list[TopicPartition], begun: list[TopicPartition]) -> None:
        if begun:
            self.together.append(len(begun))
        if ended:
            self.ended.append(len(ended))
        super()._reassign(ended, begun)


def nothing() -> None:
    """Nobody reads here."""


async def test_a_client_has_so_many_topics_and_no_more() -> None:
    planes, most = SharedPlanes(100_000), TIERS[-1].topics_max

    def lane() -> SharedPlane:
        trouble = ReadTrouble(nothing)
        return planes.lane(
            NOWHERE, ReadSettings(), nothing, trouble, skips_gone=True, is_late=False, partitions=1
        ).plane

    first = [lane() for _ in range(most)]
    second = [lane() for _ in range(3)]
    assert len(set(first)) == len(set(second)) == 1
    assert {plane.tier for plane in (first[0], second[0])} == {TIERS[-1]}
    assert first[0] is not second[0]
    await planes.close()


async def test_what_begins_and_ends_one_by_one_does_so_together_and_no_table_is_copied() -> None:
    tier, began = TIERS[-1], time.monotonic()
    plane = Noting(NOWHERE, ReadSettings(), tier, skips_gone=True)
    plane.together, plane.ended = [], []
    table = plane._numbers
    for number in range(COUNT):
        lane = plane.lane(nothing, ReadTrouble(nothing))
        lane.start(Fetch(number, SegmentBucket(0, 0), f"many-{number}", None, 0), 0)
        await asyncio.sleep(0)
    await until(lambda: sum(plane.together) == COUNT)
    # However long it takes on a busy machine.
    assert len(plane.together) <= (time.monotonic() - began) / tier.begins_s + 2
    assert plane._numbers is table
    for number in range(COUNT // 2):
        plane.stop(number)
        await asyncio.sleep(0)
    await until(lambda: sum(plane.ended) == COUNT // 2)
    assert len(plane.ended) <= (time.monotonic() - began) / tier.begins_s + 2
    await plane.close()
