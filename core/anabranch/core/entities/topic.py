"""Scalable topics (PIP-468; docs/topics.md); `topics.machine` says how they move.

Each accepted record is a version. Records that change the layout (`LAYOUT_MOVES`) are also an epoch
of it, in PIP-468's count.

Split, merge, rebucket, restore, prepare and give back are one protocol. BEGIN names the children,
whose Kafka topics are then made. SEALING is the point of no return, after which the parents are
sealed in Kafka. COMMIT carries their end offsets and makes the new layout. The topic's controller,
old or new, goes on from the last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo


@unique
class TopicState(IntEnum):
    """States; the numbers are stored, never reused."""

    INIT = 0  # unknown to the log
    CREATING = 1  # the Kafka topics of its first segments are being made
    STABLE = 2
    PREPARING = 3  # the Kafka topics of an operation's children are being made
    SEALING = 4  # an operation's parents are being sealed
    DELETING = 5  # all its Kafka topics are being deleted


@unique
class TopicMove(IntEnum):
    """Arrows' names; the numbers are stored, never reused."""

    CREATE = 0
    OPEN = 1
    BEGIN = 2
    SEALING = 3
    COMMIT = 4
    ABORT = 5
    PRUNE = 6
    CLEAR = 7  # the Kafka topics of what was pruned or aborted are gone
    UPDATE = 8  # properties
    DELETE = 9
    REMOVE = 10
    POLICY = 11  # the rules by which it changes its segments by itself
    LOST = 12  # a sealed segment's Kafka topic is gone: nobody waits for its messages


# Moves that change the layout's segments. Others are of the protocol or of the topic's settings.
LAYOUT_MOVES: Final = frozenset((TopicMove.COMMIT, TopicMove.PRUNE, TopicMove.LOST))


@unique
class Operation(IntEnum):
    """The operations on segments; the numbers are stored, never reused."""

    NONE = 0
    SPLIT = 1
    MERGE = 2
    REBUCKET = 3
    RESTORE = 4  # its Kafka topic is gone
    PREPARE = 5  # the active segments become a wanted number of equal ones, all at once
    GIVE_BACK = 6  # the adopted Kafka topic that was cut over takes the place of all, opened again


_OPEN: Final = (TopicState.STABLE, TopicState.PREPARING, TopicState.SEALING)


class ScalableTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The log's entry for one scalable topic.

    `version` counts as every entity's does. `opened` is the version that stands for epoch 0 (0
    before it opens); each record that leaves the layout as it is moves it on. `incarnation`: the
    log offset that created it, which names its Kafka topics. A topic deleted and created again thus
    never meets the remains of the former. `children`: those of the operation under way, to be
    active with its COMMIT. `garbage`: no longer in the layout, but in Kafka. `properties`: name,
    value, name, value. `auto_scale`: its overrides of the auto-scale policy, likewise. `split_ms`,
    `merge_ms`, `rebucket_ms`: the time at which the last one of each took over. `adopted_from`: the
    Kafka topic that it was made of, "" for none. `own_settings`: of that one, as they were before
    its seal: name, value, name, value. `keeps_adopted`: retention does not take that one out of the
    layout.
    """

    state: TopicState
    version: int
    opened: int
    incarnation: int
    next_segment_id: int
    segments: tuple[SegmentInfo, ...]
    operation: Operation
    parents: tuple[int, ...]
    children: tuple[SegmentInfo, ...]
    garbage: tuple[SegmentInfo, ...]
    properties: tuple[str, ...]
    move: TopicMove
    since_ms: int
    since_offset: int
    created_ms: int
    proposal_id: str
    auto_scale: tuple[str, ...] = ()
    split_ms: int = 0
    merge_ms: int = 0
    rebucket_ms: int = 0
    own_settings: tuple[str, ...] = ()
    adopted_from: str = ""
    keeps_adopted: bool = False

    @property
    def epoch(self) -> int:
        """Returns how often its layout has changed since it opened (PIP-468, "SegmentLayout")."""
        return self.version - self.opened if self.opened else 0

    @property
    def is_open(self) -> bool:
        """Tells whether clients may use it."""
        return self.state in _OPEN

    @property
    def layout(self) -> SegmentLayout:
        """The DAG as it stands; an operation under way does not show in it."""
        return SegmentLayout(
            self.epoch, self.next_segment_id, self.segments, properties_dict(self.properties)
        )

    def segment(self, segment_id: int) -> SegmentInfo | None:
        """A segment of the layout by its id."""
        return next((part for part in self.segments if part.segment_id == segment_id), None)

    @property
    def legacy(self) -> SegmentInfo | None:
        """Returns the adopted Kafka topic's segment, of which the layout has one at a time."""
        return next((part for part in self.segments if part.is_legacy), None)

    @property
    def adopted(self) -> SegmentInfo | None:
        """Returns the adopted Kafka topic's segment until it is cut over: others write to it."""
        part = self.legacy
        return part if part is not None and part.is_active else None

    @property
    def cut_over(self) -> SegmentInfo | None:
        """Returns the sealed segment of an adopted Kafka topic until it is pruned."""
        part = self.legacy
        return None if part is None or part.is_active else part

    @property
    def continued(self) -> SegmentInfo | None:
        """Returns the sealed segment whose Kafka topic an operation under way opens again."""
        sealed = self.cut_over
        if sealed is None or not any(child.continues(sealed) for child in self.children):
            return None
        return sealed

    @property
    def is_restless(self) -> bool:
        """Tells whether its controller has something to do for it by itself."""
        return self.state is not TopicState.STABLE or bool(self.garbage)


def properties_dict(flat: tuple[str, ...]) -> dict[str, str]:
    """Properties as a mapping."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def properties_flat(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Properties in their stored form, by name."""
    return tuple(part for name in sorted(properties) for part in (name, properties[name]))
