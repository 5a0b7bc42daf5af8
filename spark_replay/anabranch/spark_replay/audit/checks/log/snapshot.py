"""Snapshot equals fold: at its horizon the snapshot holds the sum of the log before it."""

from __future__ import annotations

from typing import Final

from anabranch.core.log.state import Entity
from anabranch.spark_replay.audit.tally import CheckTally

_TEXT_MAX: Final = 500


class SnapshotCheck:
    """Gathers the newest value of every key, then compares it with the fold at the horizon."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self.latest: dict[str, Entity] = {}
        self._unreadable: set[str] = set()

    def row(self, key: str, entity: Entity | None) -> None:
        """Takes the next value of a key, in the topic's order. None is a tombstone."""
        self._unreadable.discard(key)
        if entity is None:
            self.latest.pop(key, None)
        else:
            self.latest[key] = entity

    def unreadable(self, key: str) -> None:
        """Takes a row that is no state: a stranger's, or damage if the log has that key."""
        self._unreadable.add(key)
        self.latest.pop(key, None)

    def compare(self, horizon: int, folded: dict[str, Entity]) -> None:
        """Compares with the fold at the horizon, which has this state of the same keys."""
        self.tally.examined += len(folded)
        for key, entity in folded.items():
            found = self.latest.pop(key, None)
            if found is None and key in self._unreadable:
                self.tally.violate(horizon, f"{key}: the snapshot's value is damaged")
            elif found != entity:
                self.tally.violate(horizon, _difference(key, found, entity))
        for key, found in self.latest.items():
            self.tally.examined += 1
            self.tally.violate(horizon, _difference(key, found, None))
        self.latest.clear()


def _difference(key: str, found: Entity | None, folded: Entity | None) -> str:
    if found is None:
        return f"{key}: missing in the snapshot; the log makes it {_short(folded)}"
    if folded is None:
        return f"{key}: the snapshot has it as {_short(found)}; by the log it does not exist"
    if type(found) is not type(folded):
        return f"{key}: a {type(found).__name__} in the snapshot, a {type(folded).__name__} by log"
    differ = [
        f"{name} {_short(getattr(found, name))} is {_short(getattr(folded, name))} by the log"
        for name in found.__struct_fields__
        if getattr(found, name) != getattr(folded, name)
    ]
    return f"{key}: the snapshot's {'; '.join(differ)}"


def _short(value: object) -> str:
    """Shortens a value.
    A topic may have thousands of segments, and a few of them show the fault.
    """
    text = repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
