"""The machine of a scalable topic's layout, defined once, as a table (seed 001; DESIGN section 5).

Of the same kind as the service units' (`units`): a record names a *move*, an arrow says from which
states it may start, where it leads and which guards must hold. One accepted record is one epoch.
Split, merge and rebucket are one protocol: BEGIN names the children, whose Kafka topics are then
made; SEALING is the point of no return, after which the parents are sealed in Kafka; COMMIT carries
their end offsets and makes the new layout. Whoever controls the topic goes on from the last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.layout import SegmentLayout
from anabranch.core.machines import compile_arrows
from anabranch.core.segments import SegmentInfo


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
    POLICY = 11  # when it may change its segments by itself


@unique
class Operation(IntEnum):
    """What is done to segments; the numbers are stored, never reused."""

    NONE = 0
    SPLIT = 1
    MERGE = 2
    REBUCKET = 3


@unique
class TopicGuard(IntEnum):
    """Conditions an arrow can ask for; `topic_guards` holds one predicate for each."""

    CONTROLLER = 0  # the actor holds the bundle of the topic's name
    SEGMENTS_TILE = 1  # the record's segments are a first layout
    CHILDREN_FIT = 2  # the record's children can take the place of its parents
    ENDS_COMPLETE = 3  # one end offset for each partition of each parent
    PRUNABLE = 4  # the segments are sealed roots that every subscription has drained
    GARBAGE_NAMED = 5  # the segments are what waits to be deleted


class TopicArrow(msgspec.Struct, frozen=True):
    """One row: from any of `starts` by `move` to `end` (None: as before), if all guards hold."""

    move: TopicMove
    starts: tuple[TopicState, ...]
    end: TopicState | None
    guards: tuple[TopicGuard, ...]


_S, _M, _G = TopicState, TopicMove, TopicGuard
_OPEN: Final = (_S.STABLE, _S.PREPARING, _S.SEALING)

TOPIC_ARROWS: Final[tuple[TopicArrow, ...]] = (
    TopicArrow(_M.CREATE, (_S.INIT,), _S.CREATING, (_G.CONTROLLER, _G.SEGMENTS_TILE)),
    TopicArrow(_M.OPEN, (_S.CREATING,), _S.STABLE, (_G.CONTROLLER,)),
    TopicArrow(_M.BEGIN, (_S.STABLE,), _S.PREPARING, (_G.CONTROLLER, _G.CHILDREN_FIT)),
    TopicArrow(_M.SEALING, (_S.PREPARING,), _S.SEALING, (_G.CONTROLLER,)),
    TopicArrow(_M.COMMIT, (_S.SEALING,), _S.STABLE, (_G.CONTROLLER, _G.ENDS_COMPLETE)),
    TopicArrow(_M.ABORT, (_S.PREPARING,), _S.STABLE, (_G.CONTROLLER,)),
    TopicArrow(_M.PRUNE, (_S.STABLE,), _S.STABLE, (_G.CONTROLLER, _G.PRUNABLE)),
    TopicArrow(_M.CLEAR, _OPEN, None, (_G.CONTROLLER, _G.GARBAGE_NAMED)),
    TopicArrow(_M.UPDATE, _OPEN, None, (_G.CONTROLLER,)),
    TopicArrow(_M.POLICY, _OPEN, None, (_G.CONTROLLER,)),
    # Not while SEALING: what has begun to be sealed is always committed first.
    TopicArrow(_M.DELETE, (_S.CREATING, _S.STABLE, _S.PREPARING), _S.DELETING, (_G.CONTROLLER,)),
    TopicArrow(_M.REMOVE, (_S.DELETING,), _S.INIT, (_G.CONTROLLER,)),
)


class ScalableTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the log says of one scalable topic.

    `version` counts as every entity's does; `opened` is the version that is epoch 0 (0 before it
    opens). `incarnation`: the log offset that created it, which names its Kafka topics, so that a
    topic deleted and created again never meets what is left of the former. `children`: of the
    operation under way, to be active with its COMMIT. `garbage`: no longer in the layout, but in
    Kafka. `properties`: name, value, name, value. `auto_scale`: what it overrides of the auto-scale
    policy, likewise. `split_ms`, `merge_ms`, `rebucket_ms`: when the last one of each took over.
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

    @property
    def epoch(self) -> int:
        """How many records it has taken since it opened."""
        return self.version - self.opened if self.opened else 0

    @property
    def is_open(self) -> bool:
        """Whether clients may use it."""
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
    def is_restless(self) -> bool:
        """Whether its controller has something to do for it by itself."""
        return self.state is not TopicState.STABLE or bool(self.garbage)


def properties_dict(flat: tuple[str, ...]) -> dict[str, str]:
    """Properties as a mapping."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def properties_flat(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Properties as they are stored, by name."""
    return tuple(part for name in sorted(properties) for part in (name, properties[name]))


TOPIC_TABLE: Final = compile_arrows(TOPIC_ARROWS)
