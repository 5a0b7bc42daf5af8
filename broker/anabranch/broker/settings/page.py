"""All settings with what people want to know of each: `anabranch settings`, docs/settings.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from anabranch.broker.settings import Settings
from anabranch.broker.settings.changes import Changes, changes_of
from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.overrides import text_of
from anabranch.broker.settings.sources import written_name
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy, setting_name

_COMPUTED: Final = {"advertisedAddress": "the host's name"}
_KINDS: Final[dict[object, str]] = {
    bool: "true, false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
}
_BOUNDS: Final = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}  # as pydantic says them
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


def setting_rows(model: type[BaseModel] = Settings) -> list[SettingRow]:
    """Every setting of a node, or of a proxy, by name."""
    overridden = {
        setting_name(field.name)
        for field in msgspec.structs.fields(AutoScalePolicy)
        if field.encode_name in OVERRIDE_FIELDS
    }
    # The cluster overrides what its nodes go by: a proxy follows no log.
    changes = changes_of if issubclass(model, Settings) else lambda _: Changes.AT_START
    rows = []
    for field, info in model.model_fields.items():
        name = written_name(model, field)
        rows.append(
            SettingRow(
                name,
                variable_of(name),
                _default(name, info),
                _values(info),
                BY_POLICY if field in overridden else changes(info).value,
                info.description or "",
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


def _default(name: str, info: FieldInfo) -> str:
    if name in _COMPUTED:
        return _COMPUTED[name]
    if info.default is None or info.default is PydanticUndefined:
        return ""
    return text_of(info.default)


def _values(info: FieldInfo) -> str:
    """Kind and bounds in words."""
    kind = _kind(info.annotation)
    bounds = [
        f"{word} {text_of(getattr(each, bound))}"
        for each in info.metadata
        for bound, word in _BOUNDS.items()
        if hasattr(each, bound)
    ]
    return " ".join([kind, *bounds])


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        kinds = (_kind(each) for each in get_args(annotation) if each is not type(None))
        return " or ".join(dict.fromkeys(kinds))
    return _KINDS.get(annotation, "text")
