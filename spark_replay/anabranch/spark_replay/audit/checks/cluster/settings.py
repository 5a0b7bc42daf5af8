"""Overrides of settings: each change replaces the value in force, and gives one that nodes can use.

This module follows the value in force through the accepted changes alone. The names and values of
settings are no matter of the log. The caller of the audit tells them, by its own release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from anabranch.core.entities.override import OVERRIDES_PREFIX, SettingOverride, override_key
from anabranch.core.log.records import PolicyOp, SettingChange
from anabranch.core.log.state import Change, Entity
from anabranch.spark_replay.audit.tally import CheckTally, Witness

# Returns the fault of a value of the setting, in words; "" for none.
SettingFault = Callable[[str, str], str]


class Given(NamedTuple):
    """A value that a setting was given, and the offset from which on it was in force."""

    offset: int
    name: str
    value: str


class Overrides:
    """Follows the override of each setting."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._in_force: dict[str, str] = {}
        self._given: dict[tuple[str, str], int] = {}

    @property
    def given(self) -> list[Given]:
        """Returns each value once, with its first offset."""
        return [Given(offset, *what) for what, offset in self._given.items()]

    def start(self, offset: int, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        if isinstance(entity, SettingOverride):
            name = key.removeprefix(OVERRIDES_PREFIX)
            self.tally.examined += 1
            self._in_force[name] = entity.value
            self._given[name, entity.value] = offset

    def changed(self, offset: int, record: SettingChange, changes: tuple[Change, ...]) -> None:
        """Checks an accepted change of an override."""
        self.tally.examined += 1
        name, before = record.name, self._in_force.get(record.name)
        for wrong in self._faults(record, before, changes):
            self.tally.violate(offset, f"{name}: {record.op.name} {wrong}")
        if record.op is PolicyOp.DELETE:
            self._in_force.pop(name, None)
        else:
            self._in_force[name] = record.value
            self._given.setdefault((name, record.value), offset)

    def _faults(
        self, record: SettingChange, before: str | None, changes: tuple[Change, ...]
    ) -> Iterable[str]:
        is_first = record.op is PolicyOp.CREATE
        if is_first is not (before is None):
            stood = "nothing overrode it" if before is None else f"it was overridden by {before!a}"
            yield f"was accepted where {stood}"
        if [key for key, _ in changes] != [override_key(record.name)]:
            yield f"changed {', '.join(key for key, _ in changes) or 'nothing'}"
            return
        after = changes[0][1]
        if record.op is PolicyOp.DELETE:
            if after is not None:
                yield "left an override behind"
        elif not isinstance(after, SettingOverride) or after.value != record.value:
            yield f"to {record.value!a} did not give it that value"
        elif after.before != (() if before is None else (before,)):
            told = f"{after.before[0]!a}" if after.before else "nothing"
            yield f"says that it replaced {told}, where {before!a} was in force"


def judge_values(tally: CheckTally, given: Iterable[Given], fault: SettingFault) -> CheckTally:
    """Adds the faults of the values themselves to the tally."""
    found = [
        Witness(each.offset, f"{each.name}: {each.value!a} was accepted: {why}")
        for each in given
        if (why := fault(each.name, each.value))
    ]
    return tally + CheckTally(0, len(found), found)
