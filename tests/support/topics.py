"""Worlds in which scalable topics can be changed, in a word each."""

from __future__ import annotations

from anabranch.core.layout import SegmentLayout
from anabranch.core.segments import SegmentInfo
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
