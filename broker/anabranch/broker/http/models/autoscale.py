"""Why a topic's controller did or did not change its segments, in the topic's statistics."""

from __future__ import annotations

from pydantic import BaseModel, Field


class LoadStats(BaseModel):
    """`SegmentLoadStats`: rates per second over the last minute."""

    msgRateIn: float
    bytesRateIn: float
    msgRateOut: float
    bytesRateOut: float
    modifiedMs: int = Field(description="Time of its last large change.")
    estimated: list[str] = Field(description="The byte rates that are estimates.")


class PolicyField(BaseModel):
    """One field of the policy in force."""

    value: bool | int | float
    level: str = Field(description="The level that sets it: broker, namespace or topic.")


class DecisionStats(BaseModel):
    """The result of one look at the load."""

    atMs: int
    trigger: str | None = Field(
        description="tick, consumers, operation or policy; null for the look of this request."
    )
    action: str = Field(description="`split 3`, `merge 1 2`, `rebucket 0 to 8` or `none`.")
    reason: str | None = Field(description="The rule that acted, or what stood against it.")
    why: str


class AutoScaleStats(BaseModel):
    """The policy in force and its decisions."""

    policy: dict[str, PolicyField]
    fault: str = Field(description="Why the policy cannot be used; empty when it can.")
    now: DecisionStats = Field(description="The decision of this moment.")
    decisions: list[DecisionStats] = Field(
        description="The last ones of this node that acted or were kept from it, newest first."
    )
