"""Worlds in which scalable topics can be changed, in a word each."""

from __future__ import annotations

import random

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import SegmentPositions
from anabranch.core.entities.topic import ScalableTopic
from support.world import A, B, World


def owned() -> World:
    """Two brokers, of which the first controls every topic."""
    world = World(A, B)
    world.owned(A)
    return world


def opened(segments: int = 2) -> World:
    world = owned()
    world.opened(segments)
    return world


def layout(world: World) -> SegmentLayout:
    return world.scalable().layout


def split(world: World, segment_id: int = 0) -> tuple[SegmentInfo, ...]:
    return layout(world).split_children(segment_id)


def random_positions(rng: random.Random, topic: ScalableTopic) -> tuple[SegmentPositions, ...]:
    """Of some segments, now and then spoilt."""
    found = []
    for part in rng.sample(topic.segments, rng.randrange(len(topic.segments) + 1)):
        ends = part.end_offsets or (9,) * part.buckets
        most = tuple(rng.randrange(end + 1 + (rng.random() < 0.05)) for end in ends)
        found.append(SegmentPositions(part.segment_id, most[rng.random() < 0.05 :]))
    return tuple(found)
