"""Changes of overrides of settings in a log that is made up."""

from __future__ import annotations

from anabranch.core.log.records import PolicyOp, SettingChange
from support.history import History

NAME = "lookupTimeoutMillis"


def override_change(
    history: History, op: PolicyOp, value: str = "", name: str = NAME
) -> SettingChange:
    """The next change of a setting's override, as a node proposes it."""
    before = history.state.override(name)
    return history.next_of(SettingChange, before, name=name, op=op, value=value)
