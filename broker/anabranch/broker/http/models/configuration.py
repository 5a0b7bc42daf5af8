"""Bodies about settings that are overridden."""

from __future__ import annotations

from pydantic import BaseModel, Field


class OverrideData(BaseModel):
    """A setting that the cluster overrides."""

    value: str = Field(description="The value, as text.")
    before: str | None = Field(description="The override that this one replaced, if any.")
    sinceMs: int = Field(description="Time of its last change, on the log's clock.")
    broker: str = Field(description="The broker that was asked to.")
    ignored: str = Field(description="Why it does not count on this node; empty: it does.")
