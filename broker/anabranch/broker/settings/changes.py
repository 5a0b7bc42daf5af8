"""The time at which a setting may change: a field's type says if it may while a node runs."""

from __future__ import annotations

from enum import Enum, unique
from typing import Annotated, TypeVar

from pydantic.fields import FieldInfo

_T = TypeVar("_T")


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
