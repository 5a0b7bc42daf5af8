"""`Timelines`: the duration of each step of a layout change, on the node that carries it out.

The steps are those of docs/topics.md. Between two records something is done in Kafka, and counts
with its failed tries. Then the record that says so goes to the log and comes back. From the seal on
Kafka refuses the parents' appends, so the last two steps are what producers feel.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicState
from anabranch.core.topics.tasks import MakeSegments, SealSegments, Task


class ChangeStep(StrEnum):
    """A step of a layout change; WHOLE: from BEGIN to COMMIT."""

    MAKE = "make"  # the children's Kafka topics, and their copies
    SEALING = "sealing"  # the record
    SEAL = "seal"  # the parents' Kafka topics
    COMMIT = "commit"  # the record
    WHOLE = "whole"


class Timeline(msgspec.Struct, frozen=True):
    """One change that took over; in seconds."""

    operation: Operation
    parents: int
    children: int
    seconds: dict[ChangeStep, float]


class _UnderWay(msgspec.Struct):
    """A change under way. `at`: the start of the first step, and the end of each."""

    operation: Operation
    parents: int
    children: tuple[SegmentInfo, ...]
    at: list[float]


_OVER_AFTER = {MakeSegments: 1, SealSegments: 3}  # so many times are known then
_STEPS = (ChangeStep.MAKE, ChangeStep.SEALING, ChangeStep.SEAL, ChangeStep.COMMIT)


class Timelines:
    """The changes of all topics. A change has a timeline if this node has carried out all of it."""

    def __init__(self) -> None:
        self._under_way: dict[str, _UnderWay] = {}

    def carried_out(self, name: str, task: Task, now: float) -> None:
        """A task of the topic is done."""
        known = self._under_way.get(name)
        if known is None or _OVER_AFTER.get(type(task)) != len(known.at):
            return
        if isinstance(task, SealSegments) or task.segments == known.children:
            known.at.append(now)

    def folded(self, name: str, topic: ScalableTopic | None, now: float) -> Timeline | None:
        """A record of the topic was accepted; returns the timeline of the change that is over."""
        known = self._under_way.get(name)
        if topic is not None and topic.state is TopicState.PREPARING:
            if known is None:
                parents = len(topic.parents)
                self._under_way[name] = _UnderWay(topic.operation, parents, topic.children, [now])
            return None
        if known is None:
            return None
        if topic is not None and topic.state is TopicState.SEALING:
            if len(known.at) == 2:
                known.at.append(now)
            return None
        del self._under_way[name]
        if len(known.at) < len(_STEPS):
            return None
        at = [*known.at, now]
        seconds = {step: at[n + 1] - at[n] for n, step in enumerate(_STEPS)}
        seconds[ChangeStep.WHOLE] = now - at[0]
        return Timeline(known.operation, known.parents, len(known.children), seconds)
