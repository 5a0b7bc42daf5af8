"""Foreign changes of a segment's Kafka topic: the rule by which they are told. Pure.

A segment belongs to its controller. Tools that restore settings, cleaners, and people at a prompt
do not know that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique

import msgspec


@unique
class SegmentFinding(Enum):
    """A difference from the state in which its controller left it."""

    MISSING = "missing"  # Kafka has no such topic
    OTHER_TOPIC = "other_topic"  # it was deleted, and made anew under its name
    PARTITIONS = "partitions"  # there are more, or fewer
    SEAL_GONE = "seal_gone"  # a sealed segment takes appends
    SETTINGS = "settings"  # another setting that it lives by
    STRAYS = "strays"  # messages behind the logged end


Findings = Mapping[SegmentFinding, str]  # with what to tell


class KafkaTopic(msgspec.Struct, frozen=True):
    """Kafka's answer about one topic. `topic_id`: in the form of Kafka's tools."""

    topic_id: str
    partitions: int
    settings: Mapping[str, str]


class Expected(msgspec.Struct, frozen=True):
    """The expected state of a segment's topic. `seal`: settings that only a sealed segment has.
    `topic_id`: the id that it had; "" if unknown. `ends`: those of a sealed one.
    """

    partitions: int
    sealed: bool
    seal: Mapping[str, str]
    settings: Mapping[str, str]
    topic_id: str = ""
    ends: Sequence[int] = ()

    @property
    def loss(self) -> str:
        """The loss that comes with the loss of its topic."""
        most = f", {sum(self.ends)} messages at most," if self.ends else ""
        return f"what it held{most} is lost"


def findings(expected: Expected, found: KafkaTopic | None) -> dict[SegmentFinding, str]:
    """The findings on a topic; None: Kafka has none of that name.

    >>> limit = {"max.message.bytes": "78"}
    >>> right = Expected(4, True, limit, {"cleanup.policy": "delete"})
    >>> told = findings(right, KafkaTopic("", 4, {"max.message.bytes": "1000"}))
    >>> told[SegmentFinding.SEAL_GONE]
    'it is sealed, but max.message.bytes is 1000 and not 78'
    """
    if found is None:
        return {SegmentFinding.MISSING: f"Kafka has no such topic: {expected.loss}"}
    told: dict[SegmentFinding, str] = {}
    if expected.topic_id and found.topic_id != expected.topic_id:
        told[SegmentFinding.OTHER_TOPIC] = (
            f"its topic was deleted and made anew, with id {found.topic_id} and not "
            f"{expected.topic_id}: {expected.loss}"
        )
    if found.partitions != expected.partitions:
        told[SegmentFinding.PARTITIONS] = (
            f"it has {found.partitions} partitions and not {expected.partitions}: nobody reads "
            "those that were added"
            if found.partitions > expected.partitions
            else f"it has {found.partitions} partitions and not {expected.partitions}"
        )
    open_by = _differing(expected.seal, found.settings)
    if expected.sealed and open_by:
        told[SegmentFinding.SEAL_GONE] = f"it is sealed, but {open_by}"
    others = _differing(expected.settings, found.settings)
    if not expected.sealed and expected.seal.items() <= found.settings.items():
        others = "; ".join(filter(None, (others, "it is active, but its topic is sealed")))
    if others:
        told[SegmentFinding.SETTINGS] = others
    return told


def strays_told(ends: Sequence[int], strays: Mapping[int, Sequence[int]]) -> str:
    """The text about messages behind logged ends; `strays` has their offsets by partition,
    ascending.

    >>> strays_told((5, 7), {1: (7, 9)})
    '2 messages behind its logged ends, which nobody reads: partition 1 (ends at 7): offsets 7 to 9'
    """
    parts = (
        f"partition {number} (ends at {ends[number]}): offsets {offsets[0]} to {offsets[-1]}"
        for number, offsets in sorted(strays.items())
    )
    count = sum(map(len, strays.values()))
    return (
        f"{count} message{'s' * (count != 1)} behind its logged ends, which nobody reads: "
        + "; ".join(parts)
    )


def _differing(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} is {found[name]} and not {value}"
        for name, value in wanted.items()
        if name in found and found[name] != value
    )
