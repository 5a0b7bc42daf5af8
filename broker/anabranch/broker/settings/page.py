"""All settings with what people want to know of each: `anabranch settings`, docs/settings.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from anabranch.broker.settings import Settings
from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.fields import Changes, Setting, SettingFields, text_of
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy, setting_name

_COMPUTED: Final = {"advertisedAddress": "the host's name"}
BY_POLICY: Final = f"{Changes.AT_RUN_TIME.value}; policy"


class SettingRow(msgspec.Struct, frozen=True, rename="camel"):
    """One setting. `changes`: the times at which it may change.

    It may change at a node's start, or also while the node runs. `anabranch config` changes it
    then, or for topics a policy.
    """

    name: str
    variable: str
    default: str
    values: str
    changes: str
    meaning: str


def setting_rows(model: type[SettingFields] = Settings) -> list[SettingRow]:
    """Every setting of a node, or of a proxy, by name."""
    overridden = {
        setting_name(field.name)
        for field in msgspec.structs.fields(AutoScalePolicy)
        if field.encode_name in OVERRIDE_FIELDS
    }
    # The cluster overrides what its nodes go by: a proxy follows no log.
    can_change = issubclass(model, Settings)
    rows = []
    for field, each in model.fields.items():
        changes = each.changes if can_change else Changes.AT_START
        rows.append(
            SettingRow(
                each.name,
                variable_of(each.name),
                _default(each),
                each.values,
                BY_POLICY if field in overridden else changes.value,
                each.description,
            )
        )
    return sorted(rows, key=lambda row: row.name)


def markdown_table(rows: Iterable[SettingRow]) -> str:
    """Returns the table of docs/settings.md."""
    lines = ["| name | default | values | changes | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        computed = row.name in _COMPUTED
        default = f"`{row.default}`" if row.default and not computed else row.default
        cells = (f"`{row.name}`", default, row.values, row.changes, row.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(each: Setting) -> str:
    if each.name in _COMPUTED:
        return _COMPUTED[each.name]
    return "" if each.default is None else text_of(each.default)
