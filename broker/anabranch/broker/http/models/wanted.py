"""`Wanted`: a body that is refused without naming all that is wrong with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

_UNKNOWN_MAX = 5  # fields; of more not each is named

Texts = Annotated[list[str], Field(fail_fast=True)]


class Wanted(BaseModel):
    """The body of a request, in known fields; an error names the first wrong element of a list."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _mostly_known(cls, said: Any) -> Any:
        if isinstance(said, dict):
            unknown = len(said.keys() - cls.model_fields.keys())
            if unknown > _UNKNOWN_MAX:
                raise PydanticCustomError(
                    "unknown_fields",
                    "{unknown} of its fields are not known; there are {known}",
                    {"unknown": unknown, "known": ", ".join(cls.model_fields)},
                )
        return said
