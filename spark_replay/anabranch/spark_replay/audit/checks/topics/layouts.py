"""Layouts: at every epoch a topic's active segments tile the ring, and its segments form a DAG.

The check looks at the state of the fold, by nothing but the words of PIP-468: ids of segments
ascend, descendants are younger, and parents and children name each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.entities.segment import RING16_END, SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.spark_replay.audit.tally import CheckTally


class Layouts:
    """Looks at every topic at each change. It tells of a broken one once."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._broken: set[str] = set()

    def changed(self, offset: int, topic: str, after: ScalableTopic | None) -> None:
        """Checks the topic after an accepted record."""
        self.tally.examined += 1
        fault = "" if after is None else _fault(after)
        if fault and topic not in self._broken:
            self.tally.violate(offset, f"{topic}: {fault}")
            self._broken.add(topic)
        elif not fault:
            self._broken.discard(topic)


def _fault(topic: ScalableTopic) -> str:
    """Returns the first fault, in words, "" for none."""
    parts = {part.segment_id: part for part in topic.segments}
    if len(parts) < len(topic.segments):
        return "two segments have the same id"
    newest = max(parts, default=-1)
    if newest >= topic.next_segment_id:
        return f"segment {newest} exists, but {topic.next_segment_id} is the next id"
    hole = _untiled(part for part in topic.segments if part.is_active)
    return hole or next((fault for part in topic.segments if (fault := _link(part, parts))), "")


def _untiled(active: Iterable[SegmentInfo]) -> str:
    edge = 0
    for part in sorted(active, key=lambda part: part.start):
        if part.start > edge:
            return f"no active segment covers {edge:04x}-{part.start - 1:04x}"
        if part.start < edge or part.end < part.start:
            return f"more than one active segment covers {part.start:04x}: {part.descriptor}"
        edge = part.end + 1
    if edge <= RING16_END:
        return f"no active segment covers {edge:04x}-{RING16_END:04x}"
    return ""


def _link(part: SegmentInfo, parts: dict[int, SegmentInfo]) -> str:
    own = part.segment_id
    for child_id in part.child_ids:
        child = parts.get(child_id)
        if child is None or own not in child.parent_ids:
            return f"segment {own} names {child_id} as its child, which does not name it as parent"
    for parent_id in part.parent_ids:
        parent = parts.get(parent_id)
        if parent is None or own not in parent.child_ids:
            return f"segment {own} names {parent_id} as its parent, which does not name it as child"
        if parent_id >= own:
            return f"segment {own} descends from {parent_id}, which is not older: a cycle"
    if part.is_active and part.child_ids:
        return f"segment {own} is active and has children"
    if not part.is_active and not part.child_ids:
        return f"segment {own} is sealed and nothing took its place"
    return ""
