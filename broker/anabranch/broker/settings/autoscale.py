"""The settings of auto-scaling, by Pulsar's names; docs/autoscale.md explains them.

They are the policy of every topic that overrides nothing (PIP-483, "Configuration"; PIP-486).
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from anabranch.broker.settings.changes import AtRunTime
from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.autoscale.schedule import AutoScaleSettings
from anabranch.core.entities.segment import BUCKETS_MAX, SEGMENTS_MAX

_DEFAULT: Final = AutoScalePolicy()
_NAMED_OTHERWISE: Final = {
    "enabled": "auto_scale_enabled",
    "max_entry_buckets_per_segment": "entry_bucket_max_per_segment",
}


def setting_of(field: str) -> str:
    """The setting that is the default of a policy's field; both as Python names them."""
    return f"scalable_topic_{_NAMED_OTHERWISE.get(field, field)}"


class AutoScaleFields(BaseModel):
    """The part of a node's settings that says when topics change their segments by themselves."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        allow_inf_nan=False,
    )

    scalable_topic_auto_scale_enabled: AtRunTime[bool] = Field(
        _DEFAULT.enabled, description="Whether topics split and merge by themselves."
    )
    scalable_topic_auto_scale_interval_seconds: AtRunTime[float] = Field(
        60.0, ge=0.1, le=86_400, description="Time between looks at a topic's load."
    )
    scalable_topic_max_segments: AtRunTime[int] = Field(
        _DEFAULT.max_segments, le=SEGMENTS_MAX, description="Most active segments of a topic."
    )
    scalable_topic_min_segments: AtRunTime[int] = Field(
        _DEFAULT.min_segments, description="Fewest active segments of a topic."
    )
    scalable_topic_max_dag_depth: AtRunTime[int] = Field(
        _DEFAULT.max_dag_depth, description="Most merges in the lineage of a segment."
    )
    scalable_topic_split_cooldown_seconds: AtRunTime[float] = Field(
        _DEFAULT.split_cooldown_seconds, description="Least time between two splits of a topic."
    )
    scalable_topic_rebucket_cooldown_seconds: AtRunTime[float] = Field(
        _DEFAULT.rebucket_cooldown_seconds,
        description="Least time between two additions of entry buckets to a topic.",
    )
    scalable_topic_merge_cooldown_seconds: AtRunTime[float] = Field(
        _DEFAULT.merge_cooldown_seconds, description="Least time between two merges of a topic."
    )
    scalable_topic_merge_window_seconds: AtRunTime[float] = Field(
        _DEFAULT.merge_window_seconds,
        description="Time that two neighbours must be cold before a merge.",
    )
    scalable_topic_rebucket_down_window_seconds: AtRunTime[float] = Field(
        _DEFAULT.rebucket_down_window_seconds,
        description="Time without changes before surplus entry buckets are given up.",
    )
    scalable_topic_split_msg_rate_in_threshold: AtRunTime[float] = Field(
        _DEFAULT.split_msg_rate_in_threshold,
        description="Messages/s in, above which a segment is split.",
    )
    scalable_topic_split_bytes_rate_in_threshold: AtRunTime[float] = Field(
        _DEFAULT.split_bytes_rate_in_threshold,
        description="Bytes/s in, above which a segment is split.",
    )
    scalable_topic_split_msg_rate_out_threshold: AtRunTime[float] = Field(
        _DEFAULT.split_msg_rate_out_threshold,
        description="Messages/s out, above which a segment is split.",
    )
    scalable_topic_split_bytes_rate_out_threshold: AtRunTime[float] = Field(
        _DEFAULT.split_bytes_rate_out_threshold,
        description="Bytes/s out, above which a segment is split.",
    )
    scalable_topic_merge_msg_rate_in_threshold: AtRunTime[float] = Field(
        _DEFAULT.merge_msg_rate_in_threshold,
        description="Messages/s in, below which a segment is cold.",
    )
    scalable_topic_merge_bytes_rate_in_threshold: AtRunTime[float] = Field(
        _DEFAULT.merge_bytes_rate_in_threshold,
        description="Bytes/s in, below which a segment is cold.",
    )
    scalable_topic_merge_msg_rate_out_threshold: AtRunTime[float] = Field(
        _DEFAULT.merge_msg_rate_out_threshold,
        description="Messages/s out, below which a segment is cold.",
    )
    scalable_topic_merge_bytes_rate_out_threshold: AtRunTime[float] = Field(
        _DEFAULT.merge_bytes_rate_out_threshold,
        description="Bytes/s out, below which a segment is cold.",
    )
    scalable_topic_split_vs_rebucket_min_msg_rate_in_threshold: AtRunTime[float] = Field(
        _DEFAULT.split_vs_rebucket_min_msg_rate_in_threshold,
        description="Messages/s in from which a consumer too many gets a segment, not buckets.",
    )
    scalable_topic_entry_bucket_budget: AtRunTime[int] = Field(
        _DEFAULT.entry_bucket_budget,
        ge=1,
        le=1_000_000,
        description="Entry buckets of a new topic, all segments together.",
    )
    scalable_topic_entry_bucket_max_per_segment: AtRunTime[int] = Field(
        _DEFAULT.max_entry_buckets_per_segment,
        ge=1,
        le=BUCKETS_MAX,
        description="Most entry buckets, which are Kafka partitions, of one segment.",
    )
    scalable_topic_sealed_segment_drain_enabled: bool = Field(
        True, description="Whether several consumers drain a sealed segment's backlog."
    )
    scalable_topic_sealed_segment_drain_delay_seconds: float = Field(
        2.0,
        ge=0,
        le=86_400,
        description="Time after its seal before several consumers drain a segment.",
    )
    scalable_topic_load_report_interval_seconds: float = Field(
        10.0, ge=0.1, le=3_600, description="Time between samples of a segment's traffic."
    )
    scalable_topic_load_report_rate_change_threshold: float = Field(
        0.25, gt=0, le=10, description="Change of a rate, as a share, that is worth a record."
    )
    scalable_topic_load_window_seconds: float = Field(
        60.0, ge=0.1, le=3_600, description="Time over which rates are averaged."
    )

    def auto_scale_policy(self) -> AutoScalePolicy:
        """The policy of a topic that overrides nothing; it may have a fault (`fault_of`)."""
        fields = AutoScalePolicy.__struct_fields__
        return AutoScalePolicy(**{field: getattr(self, setting_of(field)) for field in fields})

    def auto_scale_settings(self, *, is_allowed: bool) -> AutoScaleSettings:
        """Returns the part of them that a topic's controller must know."""
        interval_s = self.scalable_topic_auto_scale_interval_seconds
        return AutoScaleSettings(self.auto_scale_policy(), interval_s, is_allowed)

    def drain_after_s(self) -> float | None:
        """Returns the time after which several consumers drain a backlog; None: never."""
        if not self.scalable_topic_sealed_segment_drain_enabled:
            return None
        return self.scalable_topic_sealed_segment_drain_delay_seconds

    def auto_scale_problem(self) -> str:
        """Describes the fault of the policy; "" if there is none."""
        return fault_of(self.auto_scale_policy())
