"""Clients of Kafka that the topics of one consumer share."""

from __future__ import annotations

from typing import Any

from anabranch.client import ReadSettings
from anabranch.client._consumer.assignment import Fetch, SegmentBucket
from anabranch.client._consumer.reads import ReadTrouble
from anabranch.client._many.plane import (
    FIRST_PARTITIONS_MAX,
    PARTITIONS_MAX,
    SharedPlane,
    SharedPlanes,
)
from support.waiting import until

NOWHERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def nothing() -> None:
    """Nobody reads here."""


async def test_a_client_has_so_many_partitions_and_no_more() -> None:
    planes = SharedPlanes()

    def plane() -> SharedPlane:
        trouble = ReadTrouble(nothing)
        lane = planes.lane(NOWHERE, ReadSettings(), nothing, trouble, partitions=50)
        return lane.plane

    first = [plane() for _ in range(FIRST_PARTITIONS_MAX // 50)]
    second = [plane() for _ in range(PARTITIONS_MAX // 50)]
    third = plane()
    assert len(set(first)) == len(set(second)) == 1
    assert len({first[0], second[0], third}) == 3
    assert [each._settings.fetch_wait_ms for each in (first[0], second[0])] == [10, 100]
    await planes.close()


async def test_a_lane_that_ends_leaves_the_others_of_its_plane_and_makes_room() -> None:
    plane = SharedPlane(NOWHERE, ReadSettings(), FIRST_PARTITIONS_MAX)
    lanes = [plane.lane(nothing, ReadTrouble(nothing), 100) for _ in range(2)]
    for number, lane in enumerate(lanes):
        lane.start(Fetch(number, SegmentBucket(0, 0), f"many-{number}", None, 0), 0)
    await until(lambda: len(plane._numbers) == 2)
    assert not plane.has_room(1)
    await lanes[0].close()
    await until(lambda: list(plane._numbers) == [("many-1", 0)])
    assert plane.has_room(100)
    await plane.close()
