"""The settings of log lines."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from anabranch.broker.settings.changes import AtRunTime


class LogFields(BaseModel):
    """The choice of events to log, and their format."""

    log_level: AtRunTime[Literal["debug", "info", "warning", "error"]] = Field(
        "info", description="Least severity that is logged."
    )
    log_format: Literal["json", "text"] = Field("text", description="Form of log lines.")
