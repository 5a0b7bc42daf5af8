"""The machine of setting overrides, as a table, and how records change them.

No guard checks that a setting is known, or that its value can be used. Releases differ in that, and
the verdict must not.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from anabranch.core.entities.override import (
    OVERRIDES_MAX,
    SettingOverride,
    is_setting_name,
    value_fault,
)
from anabranch.core.log.conflicts import evolved, policy_machine
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import PolicyOp, SettingChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Guard
from anabranch.core.log.verdicts import Verdict

OverrideGuard = Guard[SettingOverride | None, SettingChange]


def is_sound(record: SettingChange) -> bool:
    """Tells whether a setting could have the name, and the value is a text that the log can
    keep.
    """
    if record.op is PolicyOp.DELETE and record.value:
        return False
    return is_setting_name(record.name) and not value_fault(record.value)


_SOUND: Final = OverrideGuard(
    "the name is a setting's by its form, and the value is text of a fair length",
    lambda s, e, r: is_sound(r),
    Verdict.INVALID_VALUE,
)
_ROOM: Final = OverrideGuard(
    f"there are fewer than {OVERRIDES_MAX} overrides",
    lambda s, e, r: sum(1 for _ in islice(s.overrides(), OVERRIDES_MAX)) < OVERRIDES_MAX,
    Verdict.TOO_MANY_OVERRIDES,
)

OVERRIDES: Final = policy_machine(create=(_SOUND, _ROOM), update=(_SOUND,), delete=(_SOUND,))


def evolve_override(
    state: StateReader, record: SettingChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one setting's override."""
    before = state.override(record.name)

    def made(version: int) -> SettingOverride:
        return SettingOverride(
            version=version,
            value=record.value,
            before=(before.value,) if before else (),
            broker=record.actor,
            since_ms=timestamp_ms,
            proposal_id=record.proposal_id,
        )

    return evolved(OVERRIDES, state, before, record, offset, Verdict.UNKNOWN_OVERRIDE, made)
