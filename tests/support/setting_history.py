"""Changes of overrides of settings in a log that is made up."""

from __future__ import annotations

from anabranch.core.log.records import PolicyOp, SettingChange
from support.history import BROKERS, History

NAME = "lookupTimeoutMillis"


def override_change(
    history: History, op: PolicyOp, value: str = "", name: str = NAME
) -> SettingChange:
    """The next change of a setting's override, as a node proposes it."""
    before = history.state.override(name)
    return SettingChange(
        proposal_id=history.new_id(),
        name=name,
        op=op,
        version=(before.version if before else 0) + 1,
        actor=BROKERS[0],
        session=history.sessions[BROKERS[0]],
        value=value,
    )
