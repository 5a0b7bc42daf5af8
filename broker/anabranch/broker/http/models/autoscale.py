"""Why a topic's controller did or did not change its segments, in the topic's statistics."""

from __future__ import annotations

from pydantic import BaseModel, Field

from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.autoscale.decisions import Decision, NoAction, describe
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.schedule import demand_of, evaluate
from anabranch.core.topics.topic import ScalableTopic


class LoadStats(BaseModel):
    """`SegmentLoadStats`: rates per second over the last minute."""

    msgRateIn: float
    bytesRateIn: float
    msgRateOut: float
    bytesRateOut: float
    modifiedMs: int = Field(description="When it changed by much the last time.")
    estimated: list[str] = Field(description="Which of the byte rates are estimates.")


class PolicyField(BaseModel):
    """One field of the policy in force."""

    value: bool | int | float
    level: str = Field(description="Where it is set: broker, namespace or topic.")


class DecisionStats(BaseModel):
    """What came of one look at the load."""

    atMs: int
    trigger: str | None = Field(
        description="tick, consumers, operation or policy; null for the look of this request."
    )
    action: str = Field(description="`split 3`, `merge 1 2`, `rebucket 0 to 8` or `none`.")
    reason: str | None = Field(description="The rule that acted, or what stood against it.")
    why: str


class AutoScaleStats(BaseModel):
    """The policy in force and what was decided by it."""

    policy: dict[str, PolicyField]
    fault: str = Field(description="Why the policy cannot be used; empty when it can.")
    now: DecisionStats = Field(description="What would be done at this moment.")
    decisions: list[DecisionStats] = Field(
        description="The last ones of this node that acted or were kept from it, newest first."
    )


def load_stats(load: SegmentLoad | None) -> LoadStats | None:
    """A segment's load as it is known; None before it had any."""
    if load is None:
        return None
    in_, out = load.estimated
    estimated = [name for name, is_ in (("bytesRateIn", in_), ("bytesRateOut", out)) if is_]
    return LoadStats(
        msgRateIn=load.msg_rate_in,
        bytesRateIn=load.bytes_rate_in,
        msgRateOut=load.msg_rate_out,
        bytesRateOut=load.bytes_rate_out,
        modifiedMs=load.modified_ms,
        estimated=estimated,
    )


def auto_scale_stats(topics: TopicOperations, name: str, topic: ScalableTopic) -> AutoScaleStats:
    """As the topic's controller sees it at this moment. Raises NotFoundError."""
    service = topics.access.service
    effective, at_ms = topics.policies.effective(name), service.runtime.log_ms
    values, demand = effective.values, demand_of(service.runtime.view, name)
    loads = service.load(name, topic.incarnation)
    now = evaluate(effective, topic, topic.layout, loads, demand, at_ms)
    return AutoScaleStats(
        policy={
            field: PolicyField(value=values[field], level=level.value)
            for field, level in effective.origins.items()
        },
        fault=effective.fault,
        now=_decision(at_ms, None, now),
        decisions=[
            _decision(each.at_ms, each.trigger.value, each.decision)
            for each in reversed(service.scaling.decisions(name))
        ],
    )


def _decision(at_ms: int, trigger: str | None, decision: Decision) -> DecisionStats:
    reason = decision.blocked if isinstance(decision, NoAction) else decision.reason
    return DecisionStats(
        atMs=at_ms,
        trigger=trigger,
        action=describe(decision),
        reason=reason.value if reason is not None else None,
        why=decision.why,
    )
