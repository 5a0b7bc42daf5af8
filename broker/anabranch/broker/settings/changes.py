"""`SettingFields`, how settings are written, and the time at which one may change.

A field's type says if it may change while a node runs.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

_T = TypeVar("_T")


class SettingFields(BaseModel):
    """Fields whose names people write in camelCase; others are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        allow_inf_nan=False,
    )


@unique
class Changes(Enum):
    """The time at which a new value takes effect."""

    AT_START = "start"
    AT_RUN_TIME = "run time"


AtRunTime = Annotated[_T, Changes.AT_RUN_TIME]
"""The type of a field that the cluster may override while its nodes run (`anabranch config`)."""


def changes_of(field: FieldInfo) -> Changes:
    """Returns the time at which the setting may change."""
    return Changes.AT_RUN_TIME if Changes.AT_RUN_TIME in field.metadata else Changes.AT_START
